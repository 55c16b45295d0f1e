"""C39: every error of the tree comes out of an actor as what was raised in it. Both runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tests.runtime.support import within
from tulip_actors import Agent, Message, TulipError, errors
from tulip_actors.testing import FunctionModel

CLASSES = {
    name: one
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, TulipError)
}


def raises(messages: Sequence[Message], tools: object) -> Exception:
    """Raise what the prompt names."""
    return CLASSES[messages[-1].content](f"{messages[-1].content} with ünïcode\nand lines")


@pytest.fixture(scope="module")
def raiser(runtime: str) -> Iterator[Agent]:
    """An agent whose model fails as it is told."""
    made = Agent(FunctionModel(raises), runtime=runtime)
    yield made
    asyncio.run(made.stop())


@pytest.mark.parametrize("name", CLASSES)
async def test_c39_an_error_survives_the_trip(name: str, raiser: Agent) -> None:
    with pytest.raises(CLASSES[name]) as raised:
        await within(raiser.arun(name))
    assert raised.value.code == CLASSES[name].code
    assert raised.value.message == f"{name} with ünïcode\nand lines"
    assert [key for key, value in vars(raised.value).items() if value is not None] == []
