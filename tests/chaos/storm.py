"""Runs in waves, with processes killed under them, and what must hold of each run afterwards.

What may live here: one wave, what is counted, and the rules. It is what `scripts/chaos` and the
small version in the suite share; nothing here knows pytest.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from tests.chaos.refunds import REFUNDS, TAKES_KEY, TOOLS, cashier, order_for, paid
from tests.chaos.rules import UNKNOWN, of_history, of_stream
from tulip_actors import (
    ActorOptions,
    Agent,
    AgentResult,
    RunRecoveredEvent,
    ToolProgressEvent,
    TulipEvent,
)
from tulip_actors.testing import FunctionModel
from tulip_actors.testing.faults import TARGETS, FaultPlan, Target

Kind: TypeAlias = Target | Literal["node"]
KINDS: tuple[Kind, ...] = (*TARGETS, "node")
LoseNode: TypeAlias = Callable[[bool], Awaitable[None]]
"""Loses the node of the agent's process, or another one where it is given false."""

STEP_S = (0.15, 0.25)
"""How long each step of a run takes: two model turns, two halves of a refund, and a look-up, so no
run is over before `5 * STEP_S[0]`."""
FIRST_KILL_S = (0.02, 0.72)
"""When the first kill of a wave comes: every run of it has begun, and none is over."""
NEXT_KILL_S = (0.75, 2.8)
"""When others come: often on the heels of a recovery, or in the middle of it."""
REFUNDING_S = (0.45, 1.2)
"""When the bodies of refunds run, if nothing has come between."""
WORKER_KILLS = 4
"""How many more workers are killed in that time: there are a few, and not all are refunding."""
HOME_SHARE = 2 / 3
"""How often the node that is lost is the agent's; else it has some of its workers."""
RUN_LIMIT_S = 90.0


@dataclass
class Lived:
    """One run, as its caller saw it."""

    order: str
    refund: str
    began_at_s: float = 0.0
    events: list[TulipEvent] = field(default_factory=list)
    came_at_s: list[float] = field(default_factory=list)
    result: AgentResult | None = None
    failure: BaseException | None = None

    @property
    def ended_at_s(self) -> float:
        """When its last event was made, in seconds since the epoch."""
        return self.events[-1].timestamp.timestamp() if self.events else self.began_at_s


@dataclass
class Figures:
    """What is counted over all waves; `problems` are the violations, in words."""

    runs: int = 0
    finished: int = 0
    refunds: int = 0
    unknown: int = 0
    recovered: int = 0
    untouched: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    silences_s: list[float] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def told(self) -> str:
        """The figures as lines."""
        kills = ", ".join(f"{n} {target}" for target, n in sorted(self.kills.items())) or "none"
        lines = [
            f"runs {self.runs}, finished {self.finished}, recovered {self.recovered}",
            f"killed: {kills}; runs that lived through no kill: {self.untouched}",
            f"refunds {self.refunds}, reported as unknown {self.unknown}",
        ]
        if self.silences_s:
            lines.append(
                f"from a kill to the next event: median {statistics.median(self.silences_s):.2f} s,"
                f" most {max(self.silences_s):.2f} s ({len(self.silences_s)} streams and kills)"
            )
        if self.recoveries_s:
            lines.append(
                f"from a kill to the recovery: median {statistics.median(self.recoveries_s):.2f} s,"
                f" most {max(self.recoveries_s):.2f} s ({len(self.recoveries_s)} recoveries)"
            )
        lines.append(f"violations {len(self.problems)}")
        return "\n".join([*lines, *(f"  {problem}" for problem in self.problems)])


def cashier_agent(actor: ActorOptions | None = None) -> Agent:
    """The agent whose runs are killed. Its calls wait for nobody: there are as many as runs."""
    return Agent(FunctionModel(cashier), TOOLS, name="cashier", runtime="ray", actor=actor)


class Storm:
    """Waves of runs of one agent. What happens follows from the seed; when, also from the load.
    Where nodes are lost, `lose_node` does it."""

    def __init__(
        self,
        agent: Agent,
        folder: Path,
        seed: int,
        kind: Kind,
        lose_node: LoseNode | None = None,
    ) -> None:
        self.agent = agent
        self.folder = folder
        self.seed = seed
        self.random = Random(seed)
        self.kind = kind
        self.lose_node = lose_node
        self.figures = Figures()
        self._wave = 0

    async def warm_up(self) -> None:
        """Have every process there is killed later."""
        ledger = self.folder / "warm"
        await self.agent.arun(order_for("warm", "refund_keyed", ledger, 0.01))

    async def wave(self, size: int, refunds: Sequence[str] = REFUNDS) -> None:
        """So many runs at once, and a kill or two while they are under way."""
        self._wave += 1
        ledger = self.folder / f"ledger_{self._wave}"
        plan = self._plan()
        runs = [Lived(f"order_{self._wave}_{n}", refunds[n % len(refunds)]) for n in range(size)]
        steps_s = [self.random.uniform(*STEP_S) for _ in runs]
        tokens = [self.random.random() < 0.3 for _ in runs]
        following = [
            asyncio.ensure_future(self._follow(one, ledger, step_s, chunks))
            for one, step_s, chunks in zip(runs, steps_s, tokens, strict=True)
        ]
        await asyncio.sleep(0)  # all are on their way before the first kill
        killing = asyncio.ensure_future(plan.carry_out(self.agent.processes))
        await asyncio.gather(*following)
        killing.cancel()
        await asyncio.wait([killing])
        self._judge(runs, ledger, plan)

    def _plan(self) -> FaultPlan:
        plan = FaultPlan(self.random.getrandbits(32))
        if self.kind == "node":
            assert self.lose_node is not None
            return plan.drop_node(
                partial(self.lose_node, self.random.random() < HOME_SHARE), between_s=FIRST_KILL_S
            )
        plan.kill(self.kind, between_s=FIRST_KILL_S)
        if self.kind == "worker":
            for _ in range(WORKER_KILLS):
                plan.kill(self.kind, between_s=REFUNDING_S)
        else:
            for _ in range(self.random.choice((0, 0, 1, 2))):
                plan.kill(self.kind, between_s=NEXT_KILL_S)
        return plan

    async def _follow(self, run: Lived, ledger: Path, step_s: float, chunks: bool) -> None:
        run.began_at_s = time.time()
        handle = self.agent.start(
            order_for(run.order, run.refund, ledger, step_s), stream_tokens=chunks
        )
        try:
            async with asyncio.timeout(RUN_LIMIT_S):
                async for event in handle.events():
                    run.events.append(event)
                    run.came_at_s.append(time.time())
                run.result = await handle.result()
        except BaseException as failure:  # judged with the rest
            run.failure = failure

    def _judge(self, runs: Sequence[Lived], ledger: Path, plan: FaultPlan) -> None:
        figures = self.figures
        kills_s = [one.at_s for one in plan.done if one.met]
        figures.kills[self.kind] += len(kills_s)
        entries = paid(ledger)
        for run in runs:
            problems = problems_of(run, [key for order, key in entries if order == run.order])
            if self.kind in ("agent", "services") and run.order not in {one for one, _ in entries}:
                problems.append("there is no refund")
            told = [e.fraction for e in run.events if isinstance(e, ToolProgressEvent)]
            if self.kind == "agent" and run.refund == "refund_async" and told != [0.0, 0.5]:
                problems.append(f"its tool told {told} of its progress")
            seed = f"seed {self.seed}, wave {self._wave} ({plan!r})"
            figures.problems += [f"{run.order} {run.refund}: {one}; {seed}" for one in problems]
            figures.runs += 1
            figures.finished += run.result is not None and run.result.success
            figures.recovered += any(isinstance(e, RunRecoveredEvent) for e in run.events)
            figures.unknown += run.result is not None and UNKNOWN in run.result.text
            lived = [at_s for at_s in kills_s if run.began_at_s < at_s < run.ended_at_s]
            figures.untouched += not lived
            figures.silences_s += [s for at_s in lived if (s := _silence_s(run, at_s)) is not None]
            figures.recoveries_s += _recoveries_s(run, lived)
        figures.refunds += len(entries)


def _silence_s(run: Lived, kill_s: float) -> float | None:
    """From a kill to the next event that came."""
    later = [came_s - kill_s for came_s in run.came_at_s if came_s > kill_s]
    return later[0] if later else None


def _recoveries_s(run: Lived, kills_s: Sequence[float]) -> list[float]:
    """To each recovery, from the kill before it."""
    came_s = [
        came_s
        for event, came_s in zip(run.events, run.came_at_s, strict=True)
        if isinstance(event, RunRecoveredEvent)
    ]
    return [at_s - max(before) for at_s in came_s if (before := [k for k in kills_s if k < at_s])]


def problems_of(run: Lived, keys: Sequence[str]) -> list[str]:
    """What does not hold of a run for whose order these refunds were paid."""
    if run.result is None:
        return [f"it did not finish: {run.failure!r}"]
    problems = [*of_stream(run.events), *of_history(run.result.messages)]
    if not run.result.success:
        problems.append(f"it ended as {run.result.stop_reason}")
    if len(keys) > 1:
        problems.append(f"{len(keys)} refunds were paid, with the keys {', '.join(keys)}")
    is_unknown = UNKNOWN in run.result.text
    if is_unknown and run.refund in TAKES_KEY:
        problems.append("a tool that takes the key was not made again")
    if not keys and not is_unknown:
        problems.append(f"no refund was paid, and it is said: {run.result.text[-200:]}")
    return problems
