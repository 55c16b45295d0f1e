"""C34: models without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tulip_actors import (
    Agent,
    ChatModel,
    Message,
    ModelBadResponse,
    ModelChunkEvent,
    ModelResponse,
    Role,
    ScriptExhausted,
    ToolCall,
    tool,
)
from tulip_actors.core.ports import StreamingChatModel
from tulip_actors.models.accumulate import accumulate
from tulip_actors.testing import FunctionModel, ScriptedModel, text, tool_call, tool_calls

HELLO = [Message.user("hello")]


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def calls_of(message: Message) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


def test_c34_text_is_an_answer_without_calls() -> None:
    assert text("hi") == Message(Role.ASSISTANT, "hi")


def test_c34_tool_call_takes_arguments_as_a_mapping_as_keywords_or_both() -> None:
    for turn in (
        tool_call("add", {"a": 1, "b": 2}),
        tool_call("add", a=1, b=2),
        tool_call("add", {"a": 1, "b": 9}, b=2),
    ):
        assert calls_of(turn) == [("call_add", "add", {"a": 1, "b": 2})]


def test_c34_tool_call_leaves_every_argument_name_free() -> None:
    turn = tool_call("f", name="n", arguments="x")
    assert calls_of(turn) == [("call_f", "f", {"name": "n", "arguments": "x"})]


def test_c34_a_call_id_may_be_given() -> None:
    assert calls_of(tool_call("f", call_id="mine"))[0][0] == "mine"


def test_c34_tool_calls_takes_pairs_and_tool_calls() -> None:
    turn = tool_calls(("add", {"a": 1}), tool_call("add", a=2), tool_call("g", call_id="mine"))
    assert calls_of(turn) == [
        ("call_add_0", "add", {"a": 1}),
        ("call_add_1", "add", {"a": 2}),
        ("mine", "g", {}),
    ]


async def test_c34_a_script_is_played_in_order() -> None:
    model = ScriptedModel([tool_call("add", a=1), text("b"), "c"])
    answers = [(await model.complete(HELLO)).message for _ in range(3)]
    assert [bool(answer.tool_calls) for answer in answers] == [True, False, False]
    assert [answer.content for answer in answers] == ["", "b", "c"]


async def test_c34_a_script_says_when_it_runs_out_of_turns() -> None:
    model = ScriptedModel(["a"])
    await model.complete(HELLO)
    with pytest.raises(ScriptExhausted, match=r"has 1 turns and was asked for turn 2.*repeat_last"):
        await model.complete(HELLO)


async def test_c34_an_empty_script_runs_out_at_once_even_when_it_repeats() -> None:
    with pytest.raises(ScriptExhausted, match="has 0 turns"):
        await ScriptedModel([], repeat_last=True).complete(HELLO)


async def test_c34_repeat_last_plays_the_last_turn_for_ever() -> None:
    model = ScriptedModel(["a", "b"], repeat_last=True)
    assert [(await model.complete(HELLO)).message.content for _ in range(4)] == list("abbb")


async def test_c34_a_turn_may_be_an_exception_or_a_whole_response() -> None:
    response = ModelResponse(text("x"), {"prompt_tokens": 1}, "stop")
    model = ScriptedModel([ValueError("no"), response])
    with pytest.raises(ValueError, match="no"):
        await model.complete(HELLO)
    assert await model.complete(HELLO) is response


async def test_c34_a_script_advances_per_run() -> None:
    agent = Agent(ScriptedModel([tool_call("add", a=1, b=1), "two"]), [add])
    results = await asyncio.gather(*[agent.arun("x") for _ in range(5)])
    assert [result.message for result in results] == ["two"] * 5


async def test_c34_a_shared_script_counts_in_the_instance() -> None:
    agent = Agent(ScriptedModel(["first", "second"], shared=True))
    assert [(await agent.arun("x")).message for _ in range(2)] == ["first", "second"]
    with pytest.raises(ScriptExhausted):
        await agent.arun("x")


async def test_c34_summary_answers_count_as_turns_of_the_script() -> None:
    model = ScriptedModel([tool_call("add", a=1, b=1), "the summary"])
    result = await Agent(model, [add], max_iterations=1).arun("x")
    assert result.message == "the summary"


async def test_c34_doubles_record_what_they_were_asked() -> None:
    model = ScriptedModel([tool_call("add", a=1, b=1), "two"])
    agent = Agent(model, [add], "Be brief.")
    result = await agent.arun("hello", model_kwargs={"temperature": 0})
    trace: Sequence[Any] = await agent.model_trace()
    assert [len(asked.messages) for asked in trace] == [2, 4]
    assert trace[1].messages == tuple(result.messages[:4])
    assert [spec.name for spec in trace[0].tools] == ["add"]
    assert trace[0].settings == {"temperature": 0}
    assert trace[0].run_id == result.run_id


async def test_c34_outside_a_run_the_record_names_none() -> None:
    model = ScriptedModel(["a"])
    await model.complete(HELLO)
    assert model.requests[0].run_id is None


@pytest.mark.parametrize("answer", ["hi", text("hi"), ModelResponse(text("hi"))])
async def test_c34_a_function_may_answer_in_any_form(answer: Any) -> None:
    model = FunctionModel(lambda messages, tools: answer)
    assert (await model.complete(HELLO)).message.content == "hi"


async def test_c34_a_function_is_given_messages_and_tools() -> None:
    def fn(messages: Sequence[Message], tools: Any) -> str:
        return f"{messages[-1].content} {[spec.name for spec in tools]}"

    assert (await Agent(FunctionModel(fn), [add]).arun("hello")).message == "hello ['add']"


async def test_c34_a_function_may_be_a_coroutine_or_raise() -> None:
    async def fn(messages: Sequence[Message], tools: Any) -> Exception:
        await asyncio.sleep(0)
        return LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        await FunctionModel(fn).complete(HELLO)


def test_c33_doubles_are_chat_models_that_can_stream() -> None:
    assert isinstance(ScriptedModel([]), ChatModel)
    assert isinstance(ScriptedModel([]), StreamingChatModel)


@pytest.mark.parametrize(
    "answer",
    [
        ModelResponse(
            Message.assistant("a long text that is cut 🌷", (ToolCall("1", "add", {"a": 1}),)),
            {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            "stop",
        ),
        ModelResponse(Message.assistant("", (ToolCall("1", "a"), ToolCall("2", "a", {"x": [1]})))),
        ModelResponse(text("")),
    ],
)
async def test_c33_the_accumulated_stream_is_the_whole_answer(answer: ModelResponse) -> None:
    again = await accumulate(ScriptedModel([answer]).stream(HELLO))
    assert again.message == answer.message
    assert again.usage == answer.usage
    assert again.stop_reason == answer.stop_reason


async def test_c34_the_last_chunk_alone_is_done() -> None:
    chunks: list[ModelChunkEvent] = [c async for c in ScriptedModel(["long text"]).stream(HELLO)]
    assert [chunk.done for chunk in chunks] == [False, False, True]


async def test_c33_any_object_with_complete_is_a_model() -> None:
    class Parrot:
        async def complete(
            self, messages: Sequence[Message], tools: Any = None, **settings: object
        ) -> ModelResponse:
            return ModelResponse(text(messages[-1].content.upper()))

    assert (await Agent(Parrot()).arun("hello")).message == "HELLO"


async def test_c33_a_model_without_stream_answers_whole_when_tokens_are_asked_for() -> None:
    class Parrot:
        async def complete(
            self, messages: Sequence[Message], tools: Any = None, **settings: object
        ) -> ModelResponse:
            return ModelResponse(text("hi"))

    events = [event async for event in Agent(Parrot()).run("x", stream_tokens=True)]
    assert events[-2].event_type == "think"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        {"prompt_tokens": 3, "completion_tokens": 4},
        {"input_tokens": 3, "output_tokens": 4},
    ],
)
async def test_c33_usage_is_counted_under_either_name(usage: dict[str, int]) -> None:
    result = await Agent(ScriptedModel([ModelResponse(text("hi"), usage)])).arun("x")
    assert result.state.usage == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }


async def test_c33_an_answer_in_the_wrong_form_is_a_bad_response() -> None:
    class Broken:
        async def complete(
            self, messages: Sequence[Message], tools: Any = None, **settings: object
        ) -> Any:
            return {"content": "hi"}

    with pytest.raises(ModelBadResponse, match="return a ModelResponse"):
        await Agent(Broken()).arun("x")


async def test_a_bare_message_is_understood_or_refused_alike_in_turns_and_summary() -> None:
    class Bare:
        """Answers with a Message where a ModelResponse is meant."""

        def __init__(self, *answers: Message) -> None:
            self.answers = list(answers)

        async def complete(
            self, messages: Sequence[Message], tools: Any = None, **settings: object
        ) -> Any:
            return self.answers.pop(0)

    async def outcome(agent: Agent) -> object:
        try:
            return (await agent.arun("x")).message
        except Exception as error:
            return type(error)

    turn = await outcome(Agent(Bare(text("hi"))))
    capped = Agent(Bare(tool_call("add", a=1, b=1), text("hi")), [add], max_iterations=1)
    assert await outcome(capped) == turn
