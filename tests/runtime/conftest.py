"""One agent per runtime for all tests whose script can travel in the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.support import ALL_TOOLS, play
from tulip_actors import Agent
from tulip_actors.testing import FunctionModel


@pytest.fixture(scope="session")
def agent(runtime: str) -> Iterator[Agent]:
    """An agent that plays the script in its prompt, with every tool of `support`."""
    made = Agent(FunctionModel(play), ALL_TOOLS, "Play.", name="player", runtime=runtime)
    yield made
    asyncio.run(made.stop())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where bodies leave their lines."""
    return tmp_path / "log"
