"""`checkpointer="sqlite:///runs.db"`: what a URL gives, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tulip_actors import Agent, ConfigError
from tulip_actors.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend
from tulip_actors.memory.urls import checkpointer_of
from tulip_actors.testing import ScriptedModel


def test_three_slashes_of_sqlite_begin_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = checkpointer_of("sqlite:///folder/runs.db")
    assert isinstance(store, SQLiteBackend)
    assert store.path == tmp_path / "folder" / "runs.db"


def test_four_slashes_of_sqlite_begin_an_absolute_path(tmp_path: Path) -> None:
    store = checkpointer_of(f"sqlite:///{tmp_path}/runs.db")
    assert isinstance(store, SQLiteBackend)
    assert store.path == tmp_path / "runs.db"


def test_a_file_url_names_a_folder(tmp_path: Path) -> None:
    store = checkpointer_of(f"file://{tmp_path}/threads")
    assert isinstance(store, FileCheckpointer)
    assert store.folder == tmp_path / "threads"


def test_a_memory_url_gives_threads_of_its_own() -> None:
    one, two = checkpointer_of("memory://"), checkpointer_of("memory://")
    assert isinstance(one, MemoryCheckpointer)
    assert one is not two


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("runs.db", "'runs.db' has none of the schemes sqlite://, file://, memory://"),
        ("", "none of the schemes"),
        ("redis://localhost", "none of the schemes"),
        ("sqlite:runs.db", "none of the schemes"),
        ("sqlite://", "names no path: write sqlite:///runs.db"),
        ("sqlite:///", "names no path"),
        ("sqlite://runs.db", "names no path: write sqlite:///runs.db"),
        ("file://threads", "names no path: write file:///var/lib/threads"),
        ("memory://x", "memory:// takes nothing more"),
    ],
)
def test_what_names_no_checkpointer_is_refused_when_the_agent_is_made(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^checkpointer: .*{told}"):
        Agent(ScriptedModel([]), checkpointer=url)


async def test_a_conversation_goes_on_in_the_file_that_the_url_names(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    for said in ("one", "two"):
        agent = Agent(ScriptedModel([said]), runtime="inline", checkpointer=url)
        result = await agent.arun("Go on.", thread_id="t")
        await agent.stop()
    assert [one.content for one in result.messages if one.content != "Go on."] == ["one", "two"]


def test_a_backend_is_imported_only_when_it_is_named() -> None:
    program = (
        "import sys, tulip_actors.memory.urls, tulip_actors.memory.backends, tulip_actors.agent\n"
        "from tulip_actors import Agent\n"
        "assert 'sqlite3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
