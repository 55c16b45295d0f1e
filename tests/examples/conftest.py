"""The audit example, loaded as the command line loads it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.process import Cli
from tulip_actors.cli.load import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def audit() -> ModuleType:
    return load(ROOT / "examples" / "audit_team.py").module


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    folder = tmp_path / "cli"
    folder.mkdir()
    return Cli(folder)
