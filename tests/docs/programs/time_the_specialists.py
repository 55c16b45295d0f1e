"""A garden office: who of the team took how long, and what came of it."""

import asyncio

from patterns import Orchestrator, Specialist
from tulip_actors.core.events import (
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    ToolCompleteEvent,
)
from tulip_actors.testing import ScriptedModel, text, tool_call
from tulip_actors.tools.decorator import tool


@tool(idempotent=True)
def order_bulbs(kind: str, count: int) -> str:
    """Order bulbs from the nursery."""
    return f"B-7: {count} {kind}"


orchestrator = Orchestrator(
    name="garden office",
    specialists=[
        Specialist(id="soil", model=ScriptedModel([text("Sandy; it drains well.")])),
        Specialist(
            id="buyer",
            tools=[order_bulbs],
            model=ScriptedModel(
                [tool_call("order_bulbs", kind="crocus", count=200), text("Ordered: B-7.")]
            ),
        ),
    ],
    router=lambda task, specialists: [one.id for one in specialists],
)
phase: dict[str, float] = {}  # who -> milliseconds of wall-clock time


async def main() -> None:
    async for event in orchestrator.run("Two hundred crocuses for the slope: will they do there?"):
        match event:
            case SpecialistStartEvent(specialist_id=who, task=task):
                print(f"{who} begins: {task[:20]}")
            case SpecialistCompleteEvent(specialist_id=who, duration_ms=taken):
                phase[who] = taken
            case ToolCompleteEvent(tool_name="order_bulbs", error=None):
                print("the order is out")
    print(sorted(phase), all(taken > 0 for taken in phase.values()))


asyncio.run(main())
