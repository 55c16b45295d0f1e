"""One agent per runtime for all tests whose script and hooks can travel with the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.loop.support import TOOLS, Puppet, Watcher, performer
from tulip_actors import Agent


@pytest.fixture(scope="session")
def agent(runtime: str) -> Iterator[Agent]:
    """An agent that plays the script in its prompt, with every tool of `support` and a `Puppet`."""
    hooks = [Puppet(), Watcher()]
    made = Agent(performer(), TOOLS, name="player", runtime=runtime, hooks=hooks)
    yield made
    asyncio.run(made.stop())


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """A thread that no other test uses."""
    return f"thread of {request.node.nodeid}"


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file for the marks of one test."""
    return str(tmp_path_factory.mktemp("marks") / "marks")
