"""`tulip-actors runs`, `cancel`, `resume` and `drain`: the runs of a cluster that is there.

None of them starts one. A run belongs to its agent: what is only watched here goes on without us.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tulip_actors.agent.by_id import answer_run, cancel_run
from tulip_actors.agent.event_bus import EventBus
from tulip_actors.agent.handle import RunHandle
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
from tulip_actors.cli.look import print_json
from tulip_actors.core.events import TerminateEvent, TulipEvent
from tulip_actors.core.run_info import RunInfo, RunState
from tulip_actors.core.termination import SUCCESSES
from tulip_actors.errors import RunError, TulipError
from tulip_actors.memory.checkpointed_store import store_of
from tulip_actors.memory.run_infos import infos_of
from tulip_actors.memory.urls import existing
from tulip_actors.streaming.console import ConsoleHandler, clean

OK, FAILED = 0, 1
WELL = SUCCESSES | {"interrupted"}
"""Reasons for which a segment may end without having failed; it may ask the next question."""
MOST_COLUMNS = 2_000
ACTIVE = frozenset({RunState.RUNNING, RunState.QUEUED})


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster, and which agents there."""

    address: str | None
    namespace: str

    @classmethod
    def of(cls, address: str | None, namespace: str | None) -> Where:
        """As the command line says it."""
        return cls(address, namespace or DEFAULT_NAMESPACE)

    def connect(self) -> None:
        """Use that cluster. Raises `ClusterUnreachable`."""
        EventBus.connect(self.address, runtime="ray", namespace=self.namespace)


def show_runs(where: Where, store_url: str | None, *, as_json: bool) -> int:
    """Print the runs of a cluster, or of a store."""
    if store_url is not None:
        runs: Sequence[RunInfo] = asyncio.run(infos_of(store_of(existing(store_url))))
    else:
        from tulip_actors.runtime.inspect import list_runs

        runs = list_runs(where.address, where.namespace)
    runs = sorted(runs, key=lambda one: one.since.timestamp() if one.since else 0.0)
    if as_json:
        for one in runs:
            since = one.since and one.since.isoformat()
            sys.stdout.write(json.dumps({**asdict(one), "since": since}) + "\n")
        return OK
    _print_whole(_table(runs))
    return OK


def _print_whole(table: Table | Text) -> None:
    """Print also what is wider than the terminal: an id that is cut short is of no use."""
    console = Console(highlight=False)
    wide = console.options.update(width=MOST_COLUMNS)
    console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table, crop=False)


def _table(runs: Sequence[RunInfo]) -> Table | Text:
    if not runs:
        return Text("no runs")
    table = Table(box=None, pad_edge=False)
    for title in ("RUN", "THREAD", "AGENT", "STATE", "SINCE"):
        table.add_column(title, no_wrap=True)
    table.add_column("RECOVERIES", justify="right", no_wrap=True)
    for one in runs:
        since = one.since.astimezone().strftime("%Y-%m-%d %H:%M:%S") if one.since else "?"
        reason = f" ({one.stop_reason})" if one.state is RunState.ENDED else ""
        thread = "" if one.thread_id == one.run_id else clean(one.thread_id)
        agent = clean(one.agent or one.agent_id)
        cells = (one.run_id, thread, agent, one.state + reason, since, str(one.recoveries))
        table.add_row(*map(Text, cells))
    return table


def cancel(where: Where, run_id: str, *, at_once: bool, say: Callable[[str], None]) -> int:
    """Let a run stop. Raises `RunNotFound`, and `RunError` for one that does not run."""
    from tulip_actors.runtime.inspect import list_hosted

    where.connect()
    for one in list_hosted(where.address, where.namespace):
        if one.run_id == run_id and one.state not in ACTIVE:
            raise RunError(f"run {run_id} does not run: it is {one.state}", run_id=run_id)
    cancelling = cancel_run(run_id, at_once=at_once, runtime="ray", namespace=where.namespace)
    asyncio.run(cancelling)
    say(f"run {run_id} " + ("is stopped" if at_once else "stops at its next turn"))
    return OK


@dataclass(frozen=True, slots=True)
class Reply:
    """What a human answers, and to which question of the run."""

    run_id: str
    response: str
    interrupt_id: str | None

    @property
    def value(self) -> object:
        """The response as JSON says it; text that is no JSON is itself."""
        try:
            return json.loads(self.response)
        except ValueError:
            return self.response


def resume(where: Where, reply: Reply, *, as_json: bool) -> int:
    """Answer a run, and show it to the end of its segment. Raises what the run raises."""
    where.connect()
    handle = answer_run(
        *(reply.run_id, reply.value, reply.interrupt_id), runtime="ray", namespace=where.namespace
    )
    show = print_json if as_json else ConsoleHandler().handle
    try:
        ended = asyncio.run(_followed(handle, show))
    except TulipError:
        raise
    except Exception as error:  # whatever the agent's own code raised
        text = f"run {reply.run_id} failed: {type(error).__name__}: {error}"
        raise RunError(text, run_id=reply.run_id) from error
    return OK if ended is not None and ended.stop_reason in WELL else FAILED


async def _followed(
    handle: RunHandle[object], show: Callable[[TulipEvent], None]
) -> TerminateEvent | None:
    last: TulipEvent | None = None
    async for event in handle.events():
        show(last := event)
    return last if isinstance(last, TerminateEvent) else None


def drain(where: Where, agent_id: str, drain_s: float, say: Callable[[str], None]) -> int:
    """Empty an agent and end it; what is left of its runs is kept."""
    from tulip_actors.runtime.inspect import drain_agent

    left = drain_agent(where.address, where.namespace, agent_id, drain_s)
    say(f"{agent_id} has ended" + ("" if left else "; no run was left"))
    for run_id in left:
        say(f"left: {run_id}")
    return OK
