"""C44: every store that is shipped does what the published tests of a RunStore ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tulip_actors.core.ports import RunStore
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend
from tulip_actors.memory.run_store import MemoryRunStore
from tulip_actors.testing.stores import RunStoreConformance


class TestMemory(RunStoreConformance):
    async def make_store(self) -> RunStore:
        return MemoryRunStore()

    async def reopen(self, store: RunStore) -> RunStore:
        assert isinstance(store, MemoryRunStore)
        return MemoryRunStore(store.log)


class TestFile(RunStoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "threads"

    async def make_store(self) -> RunStore:
        return FileCheckpointer(self.folder)

    async def reopen(self, store: RunStore) -> RunStore:
        return FileCheckpointer(self.folder)


class TestSQLite(RunStoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    async def make_store(self) -> RunStore:
        return SQLiteBackend(self.path)

    async def reopen(self, store: RunStore) -> RunStore:
        return SQLiteBackend(self.path, fsync=True)  # a writer of its own, as another process has


def test_the_published_tests_can_be_imported_where_pytest_is_not_installed() -> None:
    program = "import sys; sys.modules['pytest'] = None; import tulip_actors.testing.stores"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("shipped", [TestMemory, TestFile, TestSQLite])
def test_every_published_test_runs_on_every_shipped_store(
    shipped: type[RunStoreConformance],
) -> None:
    published = [name for name in vars(RunStoreConformance) if name.startswith("test_")]
    assert len(published) > 20
    assert [name for name in published if name in vars(shipped)] == [], "none is overridden"
