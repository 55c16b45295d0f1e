"""The command line, ready to be started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import Cli
from tulip_actors.cli import main


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    folder = tmp_path / "cli"
    folder.mkdir()
    return Cli(folder)


class Here:
    """Runs a command in this process: a second quicker than in one of its own."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def run(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        words = ["tulip-actors", *map(str, arguments)]
        on_sigterm = signal.getsignal(signal.SIGTERM)
        with self._monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", words)
            patch.setattr(sys, "path", list(sys.path))
            for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "RAY_ADDRESS", "TULIP_RUNTIME"):
                patch.delenv(name, raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                signal.signal(signal.SIGTERM, on_sigterm)
        out, err = self._capfd.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Here:
    folder = tmp_path / "here"
    folder.mkdir()
    return Here(folder, monkeypatch, capfd)
