"""A tour: few agents, and the runs from which the rows of the pages' tables can be read.

Kept apart from the tests, and free of pytest, because workers import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patterns import Orchestrator, Specialist
from tests.loop.support import TOOLS, Puppet, Run, followed, performer, ran, script
from tests.runtime.support import collected, eventually, types, within
from tulip_actors import (
    Agent,
    AgentState,
    CausalNodeEvent,
    Message,
    ReflexionConfig,
    TulipEvent,
    interrupt,
    tool,
)
from tulip_actors.core.termination import (
    ConfidenceMet,
    CustomCondition,
    MaxIterations,
    NoToolCalls,
    TextMention,
    TokenLimit,
    ToolCalled,
)
from tulip_actors.testing import FunctionModel, ModelRequest, ScriptedModel, text

SYSTEM_PROMPT = "You keep the shelves."
ADD: Any = ["add", {"a": 1, "b": 2}]
FAIL: Any = ["fails", {"message": "dropped"}]


@tool
async def choose(shelf: int) -> str:
    """Ask a human which book."""
    return str(interrupt("Which book?", ["red", "blue"], {"shelf": shelf}))


@tool
async def passes(mark: str) -> str:
    """Leave `mark.reached`, and pass once `mark.open` is there."""
    Path(f"{mark}.reached").touch()
    while not Path(f"{mark}.open").exists():  # noqa: ASYNC110  # from another process
        await asyncio.sleep(0.01)
    return "passed"


def quota(state: AgentState, **ctx: object) -> tuple[bool, str]:
    """Fires once the run has as many turns as its metadata say."""
    return state.iteration == state.metadata.get("quota"), "the quota is used up"


ENOUGH = (
    ToolCalled("finish_up", require_success=True)
    | ConfidenceMet(0.9)
    | TextMention("enough said")
    | TokenLimit(1000)
    | CustomCondition(quota)
    | MaxIterations(4)
    | NoToolCalls()
)


@dataclass
class Agents:
    """The agents of a tour, on one runtime.

    `keeper` reflects every second turn, and has a hook. `stopper` has every condition that a
    script can meet, reflects every turn and runs its calls in order. `hasty` has no time at all;
    it and the team run inline in every tour, since an actor takes seconds to start.
    """

    keeper: Agent
    stopper: Agent
    hasty: Agent
    team: Orchestrator

    @classmethod
    def on(cls, runtime: str) -> Agents:
        """All of them; none is started yet."""
        return cls(
            keeper=Agent(
                performer(),
                [*TOOLS, choose],
                SYSTEM_PROMPT,
                runtime=runtime,
                reflexion=ReflexionConfig(evaluate_every_n_iterations=2),
                hooks=[Puppet()],
            ),
            stopper=Agent(
                performer(),
                [*TOOLS, passes],
                runtime=runtime,
                reflexion=True,
                termination=ENOUGH,
                completion_mode="explicit",
                tool_execution="sequential",
            ),
            hasty=Agent(performer(), TOOLS, runtime="inline", time_budget_seconds=1e-9),
            team=Orchestrator(
                specialists=[
                    Specialist(
                        id=one,
                        specialist_type="librarian",
                        model=ScriptedModel([text(f"{one}: nothing")]),
                    )
                    for one in ("maps", "novels")
                ],
                model=FunctionModel(chief),
                runtime="inline",
            ),
        )


def chief(messages: Sequence[Message], tools: object) -> str:
    """The team's model: sends everybody, and sums up."""
    if messages[-1].content.startswith("Task: "):
        return "We have no atlas."
    return '{"specialists": ["maps", "novels"], "reasoning": "either may have it"}'


KEEPER: dict[str, tuple[str, dict[str, Any]]] = {
    "answer": (script("It is on the shelf."), {}),
    "long": (
        script(
            {"text": "First I count.", "calls": [ADD, FAIL], "usage": [10, 2]},
            [["say", {"text": "x"}, "s1"], ["say", {"text": "y"}, "s2"]],
            [["add", {"a": 3, "b": 4}]],
            [FAIL],
            {"text": "Three books.", "usage": [3, 1]},
        ),
        {"stream_tokens": True},
    ),
    "plain": (script([ADD], "three"), {}),
    "in a channel of its own": (script({"text": "Aloud.", "reasoning": "Silently."}), {}),
    "twenty": (script(*[[["add", {"a": n, "b": n}]] for n in range(20)], "So far."), {}),
    "unknown tool": (script([["burn", {}]], "I may not."), {}),
}
"""The keeper's runs: prompt and options."""

STOPPER: dict[str, tuple[str, dict[str, Any]]] = {
    "MaxIterations": (script(*[[["add", {"a": n, "b": n}]] for n in range(9)]), {}),
    "TokenLimit": (script({"calls": [ADD], "usage": [900, 200]}), {}),
    "NoToolCalls": (script("I am done."), {}),
    "ToolCalled": (script([["finish_up", {"answer": ""}]], [["finish_up", {"answer": "42"}]]), {}),
    "ConfidenceMet": (script([["add", {"a": n, "b": n}, f"c{n}"] for n in range(7)]), {}),
    "TextMention": (script({"text": "Enough SAID, one more.", "calls": [ADD]}), {}),
    "CustomCondition": (script([ADD], [ADD]), {"metadata": {"quota": 2}}),
    "error": (script([ADD], {"raise": "overloaded"}), {}),
    "in order": (script([["count", {"path": "{path}"}], ADD, FAIL], "done"), {}),
}
"""The stopper's runs; the names are the page's reasons."""


def steered(callback: str, step: Mapping[str, object]) -> dict[str, Any]:
    """Options of a run whose hook does something at a callback, the first time."""
    return {"metadata": {"puppet": {callback: [step]}}}


STEERED: dict[str, tuple[str, dict[str, Any]]] = {
    "BeforeModelCallEvent.messages": (
        script("heard"),
        steered("on_before_model_call", {"messages": ["something else"]}),
    ),
    "AfterModelCallEvent.retry": (
        script("at first", "then"),
        steered("on_after_model_call", {"retry": True}),
    ),
    "AfterModelCallEvent.response": (
        script("the model's"),
        steered("on_after_model_call", {"response": "the hook's"}),
    ),
    "BeforeToolCallEvent.arguments": (
        script([ADD], "done"),
        steered("on_before_tool_call", {"arguments": {"a": 20, "b": 22}}),
    ),
    "BeforeToolCallEvent.cancel": (
        script([ADD], "done"),
        steered("on_before_tool_call", {"cancel": "not before noon"}),
    ),
    "BeforeToolCallEvent.cancel = True": (
        script([ADD], "done"),
        steered("on_before_tool_call", {"cancel": True}),
    ),
    "AfterToolCallEvent.retry": (
        script([["count", {"path": "{path}"}]], "done"),
        steered("on_after_tool_call", {"retry": True}),
    ),
    "AfterToolCallEvent.result": (
        script([ADD], "done"),
        steered("on_after_tool_call", {"result": "the hook's"}),
    ),
}
"""Runs of the keeper whose hook assigns to one field, named by event and field."""


@dataclass
class Tour:
    """The runs, by name, and what else was seen."""

    runs: dict[str, Run]
    team: list[TulipEvent]
    asked: Sequence[ModelRequest]
    left_early: list[TulipEvent]

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]

    def asked_in(self, name: str) -> list[ModelRequest]:
        """What the keeper's model was asked in a run."""
        run_id = self[name].ok.run_id
        return [request for request in self.asked if request.run_id == run_id]


async def travel(agents: Agents, folder: Path) -> Tour:
    """All runs at once, each to its end."""
    await within(asyncio.gather(agents.keeper.observe(), agents.stopper.observe()), 60)
    plans = [
        *[(name, agents.keeper, *plan) for name, plan in (KEEPER | STEERED).items()],
        *[(name, agents.stopper, *plan) for name, plan in STOPPER.items()],
        ("TimeLimit", agents.hasty, script([ADD], "done"), {}),
    ]
    names = [name for name, *_ in plans]
    runs = [
        ran(agent, prompt.replace("{path}", str(folder / name)), **options)
        for name, agent, prompt, options in plans
    ]
    task = "Have we got an atlas?"
    ended, question, cancelled, team, left_early = await within(
        asyncio.gather(
            asyncio.gather(*runs),
            pause_one(agents.keeper),
            cancel_one(agents.stopper, folder),
            collected(agents.team.run(task)),
            leave_one(agents.keeper),
        ),
        90,
    )
    named = dict(zip(names, ended, strict=True)) | {"question": question, "cancelled": cancelled}
    asked = [one for one in await agents.keeper.model_trace() if isinstance(one, ModelRequest)]
    await asyncio.gather(
        *[one.stop() for one in (agents.keeper, agents.stopper, agents.hasty, agents.team)]
    )
    return Tour(named, team, asked, left_early)


async def cancel_one(agent: Agent, folder: Path) -> Run:
    """A run that is asked to stop while its first turn is under way."""
    mark = str(folder / "cancelled")
    handle = agent.start(script([["passes", {"mark": mark}]], [ADD], [ADD]))
    await eventually(Path(f"{mark}.reached").exists, "the tool runs")
    await agent.acancel(run_id=handle.run_id)
    Path(f"{mark}.open").touch()  # for another process
    return await followed(handle)


async def pause_one(agent: Agent) -> Run:
    """A run whose tool asks a human."""
    handle = agent.start(script([["choose", {"shelf": 3}]]))
    return Run(await collected(handle.events()), await handle.result())


async def leave_one(agent: Agent) -> list[TulipEvent]:
    """What a reader saw of a run that it left at its first thought."""
    seen: list[TulipEvent] = []
    async with agent.run(script([ADD], "done")) as stream:
        async for event in stream:
            seen.append(event)
            if event.event_type == "think":
                break
    seen += [event async for event in stream]
    return seen


def nodes(run: Run) -> list[str]:
    """The way of a run through the router: the nodes it came to, in order."""
    way: list[str] = []
    for event in run.events:
        node = _NODE_OF.get(event.event_type)
        if isinstance(event, CausalNodeEvent):
            node = "iteration start" if event.node_id == "on_iteration_start" else None
        if node is not None and not (node == "Execute" and way[-1] == "Execute"):
            way.append(node)
    return way


_NODE_OF = {
    "think": "Think",
    "tool_start": "Execute",
    "tool_complete": "Execute",
    "reflect": "Reflect",
    "terminate": "Terminate",
}


def order(run: Run) -> list[str]:
    """The discriminators of a run's events, without those of its hook."""
    return [kind for kind in types(run.events) if kind != "causal_node"]
