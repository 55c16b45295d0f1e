"""A picture of who ran when, on which process: one lane per process, drawn from events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from tulip_actors import (
    OrchestratorDecisionEvent,
    SpecialistStartEvent,
    ThinkEvent,
    ToolCompleteEvent,
    TulipEvent,
)

WIDTH_PX, LEFT_PX, RIGHT_PX, TOP_PX = 1100, 250, 24, 64
LANE_PX, BAR_PX = 22, 14
MERGE_PX = 0.5
"""Bars closer than this are drawn as one: thousands of calls stay a small file."""
COLOURS = ("#3366cc", "#dc7f0b", "#2a9d5c", "#b3418f", "#7a6a00", "#00808c")
TEAM_COLOUR = "#444444"


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of time in seconds since the first event; `kind`: run, model, call or decision."""

    start_s: float
    end_s: float
    kind: str
    who: str
    title: str


@dataclass(slots=True)
class Lane:
    """One process."""

    label: str
    bars: list[Bar] = field(default_factory=list)


def timeline(events: Sequence[TulipEvent]) -> str:
    """The SVG of a run."""
    if not events:
        return _svg(["<text x='20' y='40'>Nothing ran.</text>"], 80)
    zero = min(event.timestamp.timestamp() for event in events)
    agents, workers = _lanes(events, zero)
    lanes = [*agents, *workers]
    total_s = max(0.001, *(bar.end_s for lane in lanes for bar in lane.bars))
    scale = (WIDTH_PX - LEFT_PX - RIGHT_PX) / total_s
    whos = list(dict.fromkeys(bar.who for lane in lanes for bar in lane.bars if bar.who))
    colours = {who: COLOURS[i % len(COLOURS)] for i, who in enumerate(whos)}
    bottom = TOP_PX + LANE_PX * len(lanes)
    title = (
        f"Who ran when: {len(agents)} agent processes, {len(workers)} worker processes, "
        f"{total_s:.1f} s"
    )
    parts = [
        f"<text x='16' y='26' font-size='16' font-weight='bold'>{title}</text>",
        *_legend(colours),
        *_axis(total_s, scale, bottom),
    ]
    for row, lane in enumerate(lanes):
        parts += _drawn(lane, TOP_PX + LANE_PX * row, scale, colours, shaded=row % 2 == 0)
    return _svg(parts, bottom + 34)


def _lanes(events: Iterable[TulipEvent], zero: float) -> tuple[list[Lane], list[Lane]]:
    """The agents' processes, the team's first, and the workers' in order of their nodes."""
    agents: dict[str, Lane] = {}
    workers: dict[tuple[str, int], Lane] = {}
    nodes: dict[str, int] = {}
    last_s: dict[str, float] = {}
    for event in events:
        source, now_s = event.source, event.timestamp.timestamp() - zero
        if source is None:
            continue
        if isinstance(event, SpecialistStartEvent):
            last_s[event.member_run_id] = now_s  # its process may still have to come up
        who = source.specialist_id or ""
        lane = agents.setdefault(source.run_id, Lane(f"{who or source.agent} · pid {source.pid}"))
        began_s = last_s.setdefault(source.run_id, now_s)
        if isinstance(event, ThinkEvent) and lane.bars:
            lane.bars.append(Bar(began_s, now_s, "model", who, f"turn {event.iteration}"))
        elif isinstance(event, OrchestratorDecisionEvent):
            lane.bars.append(Bar(now_s, now_s, "decision", "", event.decision))
        elif isinstance(event, ToolCompleteEvent) and event.worker_pid is not None:
            node = event.node_id or ""
            number = nodes.setdefault(node, len(nodes) + 1)
            worker = workers.setdefault(
                (node, event.worker_pid), Lane(f"node {number} · worker {event.worker_pid}")
            )
            kind = "call" if event.parent_call_id else "parent"
            start_s = max(0.0, now_s - event.duration_ms / 1000)
            worker.bars.append(Bar(start_s, now_s, kind, who, event.tool_name))
        last_s[source.run_id] = now_s
        lane.bars.append(Bar(began_s, now_s, "run", who, ""))
    listed = sorted(workers, key=lambda key: (nodes[key[0]], key[1]))
    return list(agents.values()), [workers[key] for key in listed]


def _drawn(
    lane: Lane, top: int, scale: float, colours: dict[str, str], *, shaded: bool
) -> Iterator[str]:
    if shaded:
        yield f"<rect x='0' y='{top}' width='{WIDTH_PX}' height='{LANE_PX}' fill='#f5f5f5'/>"
    yield f"<text x='16' y='{top + 15}' font-size='12'>{escape(lane.label)}</text>"
    order = {"run": 0, "parent": 1, "call": 2, "model": 3, "decision": 4}
    for bar in sorted(_merged(lane.bars, MERGE_PX / scale), key=lambda one: order[one.kind]):
        x, y = LEFT_PX + bar.start_s * scale, top + (LANE_PX - BAR_PX) / 2
        width = max(1.0, (bar.end_s - bar.start_s) * scale)
        colour = colours.get(bar.who, TEAM_COLOUR)
        if bar.kind == "decision":
            shape = f"<circle cx='{x:.1f}' cy='{top + LANE_PX / 2}' r='4' fill='{TEAM_COLOUR}'>"
            yield f"{shape}<title>{escape(bar.title)}</title></circle>"
            continue
        look = {
            "run": f"fill='{colour}' fill-opacity='0.15'",
            "parent": f"fill='none' stroke='{colour}' stroke-width='1'",
            "call": f"fill='{colour}'",
            "model": f"fill='{colour}' fill-opacity='0.6'",
        }[bar.kind]
        yield (
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{BAR_PX}' {look}>"
            f"<title>{escape(f'{bar.who} {bar.title}'.strip())}</title></rect>"
        )


def _merged(bars: Sequence[Bar], gap_s: float) -> Iterator[Bar]:
    """Bars of one kind and owner that touch, as one."""
    open_: dict[tuple[str, str], Bar] = {}
    for bar in sorted(bars, key=lambda one: one.start_s):
        key = (bar.kind, bar.who)
        known = open_.get(key)
        if known and bar.kind in ("run", "call") and bar.start_s - known.end_s <= gap_s:
            end_s = max(known.end_s, bar.end_s)
            open_[key] = Bar(known.start_s, end_s, bar.kind, bar.who, bar.title)
            continue
        if known:
            yield known
        open_[key] = bar
    yield from open_.values()


def _legend(colours: dict[str, str]) -> Iterator[str]:
    x = LEFT_PX
    for who, colour in colours.items():
        yield f"<rect x='{x}' y='38' width='12' height='12' fill='{colour}'/>"
        yield f"<text x='{x + 17}' y='48' font-size='12'>{escape(who)}</text>"
        x += 30 + 7 * len(who)
    words = (
        "full: a call, framed: a scan that waits for its calls, medium: the model, dots: decisions"
    )
    yield f"<text x='{x + 6}' y='48' font-size='11' fill='#666'>{words}</text>"


def _axis(total_s: float, scale: float, bottom: int) -> Iterator[str]:
    wanted = total_s / 8
    step_s = next((s for s in (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300) if s >= wanted), 900)
    tick = 0
    while tick * step_s <= total_s:
        x = LEFT_PX + tick * step_s * scale
        yield f"<line x1='{x:.1f}' y1='{TOP_PX}' x2='{x:.1f}' y2='{bottom}' stroke='#ddd'/>"
        place = f"x='{x:.1f}' y='{bottom + 18}' font-size='11' text-anchor='middle'"
        yield f"<text {place}>{tick * step_s:g} s</text>"
        tick += 1


def _svg(parts: Iterable[str], height: int) -> str:
    size = f"width='{WIDTH_PX}' height='{height}'"
    view = f"viewBox='0 0 {WIDTH_PX} {height}' font-family='Helvetica, Arial, sans-serif'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {view}>"
    return "\n".join([head, f"<rect {size} fill='white'/>", *parts, "</svg>\n"])
