"""`scripts/bench checkpoint`: a checkpointed turn costs what the turn added, however long the run.

Inline runtime, a `FileCheckpointer` in an empty folder, a checkpoint after every turn. Measured:
the bytes that a turn adds to the folder, and the time from one model call to the next, at turns
990-1,010 against turns 5-15 of the same runs, as medians over several runs. What the measuring
itself takes, looking at the folder, is not in the time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._bounds import Bounds
from benchmarks._doubles import AddingModel, add_one
from tulip_actors import Agent, tool
from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.messages import Message
from tulip_actors.core.runs import ModelResponse
from tulip_actors.memory.backends import FileCheckpointer

EARLY, LATE = range(5, 16), range(990, 1_011)
TURNS = LATE.stop + 2
RATIO_MAX = 1.2


@dataclass(frozen=True, slots=True)
class Look:
    """A model call: when it began and ended, and how large the folder was."""

    began_ns: int
    ended_ns: int
    size_bytes: int


class LookingModel(AddingModel):
    """Looks at a folder whenever it is asked in one of the turns that count."""

    def __init__(self, turns: int, folder: Path) -> None:
        super().__init__(turns)
        self.looks: dict[int, Look] = {}
        self._folder = folder

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """One turn."""
        began_ns = time.perf_counter_ns()
        turn = len(messages) // 2
        response = await super().complete(messages, tools, **settings)
        if turn in EARLY or turn in LATE or turn - 1 in EARLY or turn - 1 in LATE:
            size_bytes = _folder_bytes(self._folder)
            self.looks[turn] = Look(began_ns, time.perf_counter_ns(), size_bytes)
        return response


def _folder_bytes(folder: Path) -> int:
    total, rest = 0, [folder]
    while rest:
        with os.scandir(rest.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    rest.append(Path(entry.path))
                else:
                    total += entry.stat().st_size
    return total


async def looks_of_a_run() -> dict[int, Look]:
    """A run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        model = LookingModel(TURNS, Path(folder))
        agent = Agent(
            model,
            [tool(add_one)],
            runtime="inline",
            max_iterations=TURNS + 1,
            checkpointer=FileCheckpointer(folder),
            checkpoint_every_n_iterations=1,
        )
        result = await agent.arun("Count.", thread_id=Path(folder).name)
        await agent.stop()
    if result.iterations != TURNS or not result.success:
        raise SystemExit(f"the run is not what it should be: {result!r}")
    return model.looks


def _added_bytes(looks: dict[int, Look], turns: Iterable[int]) -> list[float]:
    return [looks[turn + 1].size_bytes - looks[turn].size_bytes for turn in turns]


def _took_us(looks: dict[int, Look], turns: Iterable[int]) -> list[float]:
    return [(looks[turn + 1].began_ns - looks[turn].ended_ns) / 1000 for turn in turns]


async def measure(runs: int, bounds: Bounds) -> None:
    """Print the figures."""
    await looks_of_a_run()  # warms up
    found = [await looks_of_a_run() for _ in range(runs)]
    for what, measured in (("bytes", _added_bytes), ("us", _took_us)):
        early = [one for looks in found for one in measured(looks, EARLY)]
        late = [one for looks in found for one in measured(looks, LATE)]
        before, after = _told(what, EARLY, early), _told(what, LATE, late)
        bounds.at_most(f"  ratio of the {what}", after / before, RATIO_MAX)


def _told(what: str, turns: range, figures: list[float]) -> float:
    """Print and return a median; the mean would show a cost that comes only now and then."""
    median, mean = statistics.median(figures), statistics.fmean(figures)
    label = f"{what} of a turn, turns {turns.start:,}-{turns.stop - 1:,}"
    print(f"{label:40}{median:10,.2f}    (mean {mean:,.2f})")
    return median


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    bounds = Bounds()
    asyncio.run(measure(parser.parse_args().runs, bounds))
    bounds.exit()


if __name__ == "__main__":
    main()
