"""Messages and tools as OpenAI's JSON, and its answers as ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.frozen import FrozenDict, JsonObject
from tulip_actors.core.messages import Message, ToolCall, ToolResult
from tulip_actors.errors import ConfigError, ModelBadResponse, ModelThrottled, ModelUnavailable
from tulip_actors.models import OpenAIChatModel
from tulip_actors.models.accumulate import accumulate

QUESTION = [Message.user("q")]
OK = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}


@pytest.fixture
def model(wire):
    return OpenAIChatModel("m", wire.base_url, api_key_env=None)


def piece(**delta: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def finish(reason: str = "stop", **more: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


async def test_only_what_was_set_is_sent(wire, model):
    wire.json(OK)
    await model.complete(QUESTION)
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    assert wire.requests[0].body == body
    assert wire.requests[0].path == "/v1/chat/completions"


async def test_settings_of_the_call_go_before_those_of_the_model(wire):
    model = OpenAIChatModel("m", wire.base_url, None, temperature=1, seed=7, top_p=0.5)
    wire.json(OK)
    await model.complete(
        QUESTION, temperature=0, seed=None, response_format={"type": "json_object"}
    )
    sent = wire.requests[0].body
    assert sent["temperature"] == 0
    assert sent["top_p"] == 0.5
    assert sent["response_format"] == {"type": "json_object"}
    assert "seed" not in sent


async def test_every_kind_of_message_is_converted(wire, model):
    wire.json(OK)
    call = ToolCall("c1", "weather", {"city": "Köln"})
    await model.complete(
        [
            Message.system("be brief"),
            Message.user("q"),
            Message.assistant("", (call,), reasoning="hidden"),
            Message.tool(ToolResult("c1", "weather", "sunny")),
        ]
    )
    function = {"name": "weather", "arguments": '{"city": "Köln"}'}
    assert wire.requests[0].body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
    ]


async def test_a_tool_is_sent_with_its_schema(wire, model):
    wire.json(OK)
    schema: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}}}
    await model.complete(QUESTION, [ToolSpec("f", "does f", schema)])
    function = {"name": "f", "description": "does f", "parameters": schema}
    assert wire.requests[0].body["tools"] == [{"type": "function", "function": function}]


async def test_f29_a_strict_tool_is_sent_as_one(wire, model):
    wire.json(OK)
    await model.complete(QUESTION, [ToolSpec("f", "does f", FrozenDict(), strict=True)])
    assert wire.requests[0].body["tools"][0]["function"]["strict"] is True


async def test_f31_a_malformed_call_goes_back_as_an_empty_object(wire, model):
    wire.json(OK)
    await model.complete([Message.assistant("", (ToolCall("c", "f", malformed="{oops"),))])
    sent = wire.requests[0].body["messages"]
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert sent[1]["tool_call_id"] == "c"


async def test_a_tool_name_the_model_invented_does_not_spoil_the_history(wire, model):
    wire.json(OK)
    await model.complete([Message.assistant("", (ToolCall("c", "get weather()"),))])
    sent = wire.requests[0].body["messages"][0]
    assert sent["tool_calls"][0]["function"]["name"] == "get_weather__"


async def test_text_with_half_a_character_is_sent_all_the_same(wire, model):
    wire.json(OK)
    await model.complete([Message.user("a\ud83d")])
    assert wire.requests[0].body["messages"][0]["content"] == "a\ufffd"


async def test_a_whole_answer_is_read(wire, model):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"content": None, "reasoning_content": "hm", "tool_calls": [call]}
    wire.json(
        {
            "choices": [{"message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        }
    )
    response = await model.complete(QUESTION)
    assert response.message == Message.assistant("", (ToolCall("c", "f", {"a": 1}),), "hm")
    assert response.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert response.stop_reason == "tool_calls"


async def test_each_call_of_a_whole_answer_is_a_call_of_its_own(wire, model):
    calls = [{"id": "", "function": {"name": "f", "arguments": {"n": n}}} for n in (1, 2)]
    wire.json({"choices": [{"message": {"tool_calls": calls}}]})
    response = await model.complete(QUESTION)
    assert [call.arguments for call in response.message.tool_calls] == [{"n": 1}, {"n": 2}]


async def test_text_in_parts_and_a_refusal_are_text(wire, model):
    wire.json({"choices": [{"message": {"content": [{"type": "text", "text": "hi"}]}}]})
    wire.json({"choices": [{"message": {"content": None, "refusal": "no"}}]})
    assert (await model.complete(QUESTION)).message.content == "hi"
    assert (await model.complete(QUESTION)).message.content == "no"


@pytest.mark.parametrize("payload", [{}, {"choices": []}, [], 7])
async def test_an_answer_without_a_choice_is_a_bad_response(wire, model, payload):
    wire.json(payload)
    with pytest.raises(ModelBadResponse):
        await model.complete(QUESTION)


async def test_a_stream_asks_for_usage_and_ends_with_the_done_chunk(wire, model):
    wire.sse(
        {"choices": []},
        piece(role="assistant", content=None),
        piece(content="Hel"),
        piece(content="lo"),
        finish(),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        "data: [DONE]\n\n",
    )
    chunks = [chunk async for chunk in model.stream(QUESTION)]
    assert [chunk.content for chunk in chunks] == ["Hel", "lo", None]
    assert [chunk.done for chunk in chunks] == [False, False, True]
    assert chunks[-1].usage == {"prompt_tokens": 1, "completion_tokens": 2}
    assert chunks[-1].stop_reason == "stop"
    assert wire.requests[0].body["stream"] is True
    assert wire.requests[0].body["stream_options"] == {"include_usage": True}


async def test_f36_usage_on_the_finish_chunk_and_no_done_are_fine(wire, model):
    wire.sse(piece(content="x"), finish(usage={"input_tokens": 1, "output_tokens": 2}))
    response = await accumulate(model.stream(QUESTION))
    assert response.usage == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


async def test_f36_a_character_split_between_two_reads_is_whole(wire, model):
    stream = f"data: {json.dumps(piece(content='Grüße 😀'), ensure_ascii=False)}\r\n\r\n"
    stream += f"data:{json.dumps(finish())}\r\n\r\n"
    raw = stream.encode()
    wire.raw([raw[i : i + 1] for i in range(len(raw))], content_type="text/event-stream")
    assert (await accumulate(model.stream(QUESTION))).message.content == "Grüße 😀"


async def test_a_streamed_tool_call_is_put_together(wire, model):
    def part(**entry: object) -> dict[str, Any]:
        return piece(tool_calls=[{"index": 0, **entry}])

    wire.sse(
        part(id="c", type="function", function={"name": "f", "arguments": ""}),
        part(function={"arguments": '{"a"'}),
        part(function={"arguments": ": 1}"}),
        finish("tool_calls"),
    )
    response = await accumulate(model.stream(QUESTION))
    assert response.message.tool_calls == (ToolCall("c", "f", {"a": 1}),)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "slow down", "type": "rate_limit_error"}, ModelThrottled),
        ({"message": "slow down", "code": 429}, ModelThrottled),
        ({"message": "slow down", "code": "429"}, ModelThrottled),
        ({"message": "broken", "code": "anything"}, ModelUnavailable),
        ("broken", ModelUnavailable),
    ],
)
async def test_f36_an_error_inside_a_200_stream_is_raised_as_what_it_is(
    wire, model, error, expected
):
    wire.sse(piece(content="x"), {"error": error})
    with pytest.raises(expected, match=r"slow down|broken"):
        await accumulate(model.stream(QUESTION))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"message": "gone", "code": 503}', ModelUnavailable),
        ('{"error": {"message": "gone", "code": 429}}', ModelThrottled),
        ("gone", ModelUnavailable),
    ],
)
async def test_an_error_event_is_raised_as_what_it_is(wire, model, data, expected):
    wire.sse(f"event: error\ndata: {data}\n\n")
    with pytest.raises(expected, match="gone"):
        await accumulate(model.stream(QUESTION))


async def test_an_error_inside_a_whole_200_answer_is_raised(wire, model):
    wire.json({"error": {"message": "no room", "code": 429}})
    with pytest.raises(ModelThrottled, match="no room"):
        await model.complete(QUESTION)


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_a_stream_that_breaks_off_is_an_error_and_no_short_answer(wire, model, then):
    wire.sse(piece(content="half"), then=then)
    with pytest.raises(ModelUnavailable, match="brok"):
        await accumulate(model.stream(QUESTION))


async def test_a_connection_cut_behind_the_finish_does_not_spoil_the_answer(wire, model):
    wire.sse(piece(content="all"), finish(), then="cut")
    assert (await accumulate(model.stream(QUESTION))).message.content == "all"


async def test_a_server_that_answers_a_stream_with_one_json_is_understood(wire, model):
    wire.json(OK)
    chunks = [chunk async for chunk in model.stream(QUESTION)]
    assert [(chunk.content, chunk.done) for chunk in chunks] == [("hi", False), (None, True)]


async def test_two_streams_use_one_connection(wire, model):
    for _ in range(2):
        wire.sse(piece(content="x"), finish(), "data: [DONE]\n\n")
        await accumulate(model.stream(QUESTION))
    assert wire.connections == 1


@pytest.mark.parametrize("name", ["messages", "stream", "tools"])
def test_what_is_an_argument_cannot_be_a_setting(name):
    settings: dict[str, Any] = {name: 1}
    with pytest.raises(ConfigError, match=name):
        OpenAIChatModel("m", **settings)
