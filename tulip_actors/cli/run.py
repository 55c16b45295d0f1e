"""`tulip-actors run`: a job from its file to what it leaves behind, on every way out.

    check the input -> the cluster, the model -> run, shown as it goes -> deliver -> exit code

Whatever ends it (the end, a failure, Ctrl-C), the actors are stopped, the local model is gone and
`deliver` has written what there is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tulip_actors.agent.event_bus import EventBus
from tulip_actors.agent.runner import Runner
from tulip_actors.cli.choose_model import chosen_model
from tulip_actors.cli.job import Job
from tulip_actors.cli.load import JobFile, load
from tulip_actors.cli.progress import JsonView, View, view_for_people
from tulip_actors.core.events import TulipEvent
from tulip_actors.errors import ConfigError, TulipError

FAREWELL_S = 8.0
"""How long a cancelled run may take to say how it ended."""
STOP_S = 8.0
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command line of `run`."""

    file: Path
    target: Path | None
    model: str | None
    address: str | None
    out: Path
    json: bool


@dataclass(slots=True)
class Outcome:
    """What came of a run, as far as it came."""

    events: list[TulipEvent] = field(default_factory=list)
    result: Any = None
    error: Exception | None = None
    interrupted: bool = False


def run(options: RunOptions, say: Callable[[str], None]) -> int:
    """Do the job; returns the exit code. `say` prints a line for a person.

    Raises `TulipError` for what kept it from starting.
    """
    signal.signal(signal.SIGTERM, _as_interrupt)
    with ExitStack() as stack:
        view: View = (
            JsonView(stack.enter_context(_stdout_for_json())) if options.json else view_for_people()
        )
        file = load(options.file)
        target = _checked_target(file, options)
        if options.address or os.environ.get("RAY_ADDRESS"):
            # A wrong address is told before anything is started; from here on it is connected.
            EventBus.connect(options.address)
        job = file.job(target, stack.enter_context(chosen_model(options.model)))
        if job.team.runtime == "ray":
            _send_by_value(file)
        outcome = _conduct(job, view)
        return _finish(job, outcome, options, say)


def _checked_target(file: JobFile, options: RunOptions) -> Path:
    """The folder or file to work on. Raises `ConfigError`; nothing has been started yet."""
    target = file.target(options.target)
    if not target.exists():
        raise ConfigError(f"there is no {target}: give the path of an existing file or folder")
    file.check(target)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {options.out} cannot be used: {error}") from None
    return target


def _send_by_value(file: JobFile) -> None:
    from tulip_actors.runtime.pickling import by_value

    for module in file.modules:
        by_value(module)


def _conduct(job: Job, view: View) -> Outcome:
    """Run to whatever end."""
    outcome = Outcome()
    view.start()
    try:
        asyncio.run(_follow(job, view, outcome))
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:  # whatever a job raises is its failure, and is reported as such
        outcome.error = error
    finally:
        view.stop()
    return outcome


async def _follow(job: Job, view: View, outcome: Outcome) -> None:
    handle = job.team.start(job.task, metadata=job.metadata)

    async def listen(after: str | None) -> None:
        async for event in handle.events(after):
            outcome.events.append(event)
            view.take(event)

    try:
        await listen(None)
        outcome.result = await handle.result()
    except asyncio.CancelledError:
        handle.cancel()
        with suppress(TimeoutError, TulipError):
            await asyncio.wait_for(listen(handle.cursor), FAREWELL_S)
        raise
    finally:
        # What does not stop in time ends with this program, which is about to.
        with suppress(TimeoutError, TulipError):
            await asyncio.wait_for(_stop(job.team), STOP_S)


async def _stop(team: Runner[Any]) -> None:
    """End the team's actor first: it would start its members again."""
    await team.stop()
    await asyncio.gather(*(_stop(member) for member in team.members()))


def _finish(job: Job, outcome: Outcome, options: RunOptions, say: Callable[[str], None]) -> int:
    """Deliver, and say how it went."""
    failure = None if outcome.error is None else _in_a_line(outcome.error)
    if not outcome.interrupted and failure is None:
        failure = job.problem(outcome.result, outcome.events)
    partial = "" if outcome.result is not None else " (partial)"
    for path in job.deliver(outcome.result, outcome.events, options.out):
        say(f"wrote {path}{partial}")
    if outcome.interrupted:
        say("interrupted: the run was cancelled")
        return INTERRUPTED
    if failure is not None:
        say(f"error: {failure}")
        return FAILED
    return OK


def _in_a_line(error: Exception) -> str:
    return str(error) if isinstance(error, TulipError) else f"{type(error).__name__}: {error}"


def _as_interrupt(signum: int, frame: object) -> None:
    """A polite kill ends a job as Ctrl-C does: with its report."""
    signal.raise_signal(signal.SIGINT)


class _stdout_for_json:  # noqa: N801  # used as a `with` block, like a function
    """Standard output for events alone: whatever else would be printed goes to standard error.

    Also what libraries and other processes write to the file descriptor.
    """

    def __enter__(self) -> IO[str]:
        sys.stdout.flush()
        self._saved = os.dup(1)
        os.dup2(2, 1)
        self._out = os.fdopen(os.dup(self._saved), "w", encoding="utf-8")
        return self._out

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        with suppress(BrokenPipeError):
            self._out.close()
        os.dup2(self._saved, 1)
        os.close(self._saved)
