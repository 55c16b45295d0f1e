"""`tulip-actors ps` and `events`: looking at a cluster that runs. Neither starts one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tulip_actors.agent.event_bus import BusRecord, EventBus
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
from tulip_actors.core.events import AllEvents, TulipEvent
from tulip_actors.errors import ConfigError, SubscriberLagged
from tulip_actors.streaming.console import ConsoleHandler, clean

if TYPE_CHECKING:
    from tulip_actors.host.ports import AgentStatus
    from tulip_actors.runtime.services import HostEntry

OK = 0
NODE_CHARACTERS = 8


def show_agents(address: str | None, namespace: str | None, *, as_json: bool) -> int:
    """Print the agents of a cluster."""
    from tulip_actors.runtime.inspect import list_agents

    agents = list_agents(address, namespace or DEFAULT_NAMESPACE)
    if as_json:
        for entry, status in agents:
            sys.stdout.write(json.dumps(_row(entry, status)) + "\n")
        return OK
    Console(highlight=False).print(_table(agents))
    return OK


def _row(entry: HostEntry, status: AgentStatus | None) -> dict[str, object]:
    if status is not None:
        return {**asdict(status), "answers": True}
    known: dict[str, object] = {
        "name": entry.name, "id": entry.id, "pid": entry.pid, "node_id": entry.node_id,
        "restarts": entry.starts - 1, "active_runs": None, "queued": None,
    }  # fmt: skip
    return {**known, "answers": False}


def _table(agents: Sequence[tuple[HostEntry, AgentStatus | None]]) -> Table | Text:
    if not agents:
        return Text("no agents on this cluster")
    table = Table(box=None, pad_edge=False)
    for title in ("NAME", "ID", "NODE"):
        table.add_column(title, no_wrap=True)
    for title in ("PID", "RUNS", "QUEUED", "RESTARTS"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry, status in agents:
        row = _row(entry, status)
        runs, queued = ("?", "?") if status is None else (status.active_runs, status.queued)
        table.add_row(
            Text(clean(entry.name) + ("" if status else " (does not answer)")),
            *(Text(str(one)) for one in (entry.id, str(row["node_id"])[:NODE_CHARACTERS])),
            *(Text(str(one)) for one in (row["pid"], runs, queued, row["restarts"])),
        )
    return table


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The command line of `events`."""

    follow: bool
    run: str | None
    agent: str | None
    types: tuple[str, ...]
    address: str | None
    namespace: str | None
    json: bool


def show_events(options: EventOptions) -> int:
    """Print what the bus holds, and with `follow` what comes."""
    known = event_types()
    unknown = [one for one in options.types if one not in known]
    if unknown:
        raise ConfigError(f"--type {unknown[0]} is none of: {', '.join(known)}")
    bus = EventBus.connect(options.address, runtime="ray", namespace=options.namespace)
    show = print_json if options.json else ConsoleHandler().handle
    try:
        asyncio.run(_follow(bus, options, show))
    except KeyboardInterrupt:
        if not options.follow:
            raise
    return OK


async def _follow(bus: EventBus, options: EventOptions, show: Callable[[TulipEvent], None]) -> None:
    after: str | None = None
    while True:
        records = bus.subscribe(
            options.run, options.agent, options.types or None, after, options.follow
        )
        try:
            record: BusRecord
            async for record in records:
                after = record.cursor
                show(record.event)
            return
        except SubscriberLagged as lag:
            sys.stderr.write(f"{lag.missed} events were dropped before they could be shown\n")
            after = lag.cursor


def print_json(event: TulipEvent) -> None:
    """One line for an event."""
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()


def event_types() -> list[str]:
    """Every `event_type` there is."""
    union = get_args(AllEvents)[0]
    return sorted(str(one.model_fields["event_type"].default) for one in get_args(union))
