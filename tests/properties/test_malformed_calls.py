"""Whatever a model writes as a tool call, it is answered and the run goes on (C18, F31)."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections.abc import Sequence
from typing import Annotated, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from tulip_actors import Agent, Message, ModelResponse, Role, tool
from tulip_actors.core.events import ModelChunkEvent, ToolCallDelta
from tulip_actors.core.frozen import clean_text
from tulip_actors.models.accumulate import accumulate
from tulip_actors.models.history import valid_history

INPUTS = int(os.environ.get("TULIP_MALFORMED_INPUTS", "150"))
"""How many answers of a model are tried."""


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    numbers: list[int] = []


@dataclasses.dataclass
class Size:
    width: Annotated[int, Field(ge=0)]


@tool(inline=True)
def book(
    guest: str,
    nights: Annotated[int, Field(ge=1)],
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] | None = None,
    address: Address | None = None,
    sizes: dict[str, Size] | list[Size] = [],  # noqa: B006  # pydantic copies it
    rating: float = 3.0,
) -> str:
    """Book a room."""
    return "booked"


@tool(inline=True, idempotent=True)
async def ping() -> str:
    """Take nothing."""
    return "pong"


@tool(inline=True, strict=True)
async def anything(x: int | str | list[Size]) -> str:
    """Take one of several."""
    return "taken"


TOOLS = [book, ping, anything]
PARAMETERS = sorted({name for one in TOOLS for name in one.signature.names})

ODD_TEXTS = ["", "null", "[]", "{}", "red", "fast", "1", "1e999", "NaN", "\ud800", "x" * 9999]
ODD_ARGUMENTS = ["{}{}", "{'x': 1}", "```json\n{}\n```", '{"x": undefined}', "\0", "\ufeff{}"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(ODD_TEXTS),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["street", "numbers", "width"]) | st.text(), inner)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(PARAMETERS) | st.text(max_size=5), values, max_size=6)
written = st.builds(json.dumps, objects | values, ensure_ascii=st.booleans())
raw_arguments: st.SearchStrategy[str | None] = st.one_of(
    st.none(),
    st.text(max_size=20),
    written,
    written.map(json.dumps),
    st.builds(lambda text, end: text[:end], written, st.integers(0, 30)),
    st.builds(
        lambda text, depth: text * depth, st.sampled_from(["[", '{"x":']), st.integers(1, 999)
    ),
    st.builds(lambda digits: '{"nights": ' + "9" * digits + "}", st.integers(15, 5000)),
    st.sampled_from(ODD_ARGUMENTS),
)
names = st.sampled_from([one.name for one in TOOLS]) | st.text(max_size=12)
calls = st.lists(st.tuples(names, raw_arguments), min_size=1, max_size=4)


class Babbler:
    """A model that makes the calls it is told to, once, as a provider's stream would carry them."""

    def __init__(self) -> None:
        self.calls: Sequence[tuple[str, str | None]] = ()

    async def complete(
        self, messages: Sequence[Message], tools: object = None, **settings: object
    ) -> ModelResponse:
        if messages[-1].role is Role.TOOL:
            return ModelResponse(Message.assistant("went on"))
        deltas = [
            ToolCallDelta(
                index=index,
                id=f"call_{index}",
                name=clean_text(name) or None,
                arguments=None if arguments is None else clean_text(arguments),
            )
            for index, (name, arguments) in enumerate(self.calls)
        ]
        chunks = [ModelChunkEvent(tool_calls=tuple(deltas)), ModelChunkEvent(done=True)]
        return await accumulate(chunks)


@pytest.fixture(scope="module")
def agent() -> Agent:
    return Agent(Babbler(), TOOLS, runtime="inline")


@pytest.mark.timeout(120 + INPUTS // 10)
@settings(
    max_examples=INPUTS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls)
def test_c18_f31_whatever_a_model_sends_is_answered_with_what_to_send(
    agent: Agent, sent: Sequence[tuple[str, str | None]]
) -> None:
    """No crash, a valid history, and an error that says what would be right.

    TULIP_MALFORMED_INPUTS sets how many answers are tried; the issue's ten thousand are
    `TULIP_MALFORMED_INPUTS=10000 scripts/test tests/properties/test_malformed_calls.py`.
    """
    model = agent.config.model
    assert isinstance(model, Babbler)
    model.calls = sent

    result = agent.run_sync("go")

    assert (result.stop_reason, result.text) == ("complete", "went on")
    _, asked, *answers, _ = result.messages
    assert [answer.tool_call_id for answer in answers] == [call.id for call in asked.tool_calls]
    assert len(answers) == len(sent)
    for answer in answers:
        assert len(answer.content) < 5000
        if answer.is_error:
            assert "Send a" in answer.content or "; the tools are: book, ping" in answer.content
        else:
            assert answer.content in ("booked", "pong", "taken")
    json.dumps(result.state.to_checkpoint(), allow_nan=False).encode()
    assert len(valid_history(result.messages)) == len(result.messages)
