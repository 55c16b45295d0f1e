"""The command line, ready to be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    folder = tmp_path / "cli"
    folder.mkdir()
    return Cli(folder)
