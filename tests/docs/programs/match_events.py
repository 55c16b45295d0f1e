"""A birdwatcher's question, followed event by event."""

import asyncio

from tulip_actors import Message
from tulip_actors.agent import Agent
from tulip_actors.core.events import (
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
)
from tulip_actors.testing import ScriptedModel, text, tool_calls
from tulip_actors.tools.decorator import tool


@tool
def sightings(bird: str) -> list[str]:
    """Where a bird was seen this week."""
    places = {"kingfisher": ["weir", "mill pond"]}
    if bird not in places:
        raise LookupError(f"nobody reported a {bird}")
    return places[bird]


asked = tool_calls(("sightings", {"bird": "kingfisher"}), ("sightings", {"bird": "dodo"}))
agent = Agent(
    model=ScriptedModel(
        [
            Message.assistant("I read this week's reports.", asked.tool_calls),
            text("Try the weir; about the dodo I have no news."),
        ]
    ),
    tools=[sightings],
    tool_execution="sequential",
)


async def main() -> None:
    async for event in agent.run("Where can I see a kingfisher, or a dodo?"):
        match event:
            case ThinkEvent(reasoning=thought) if thought:
                print("thinks:", thought)
            case ToolStartEvent(tool_name=name, arguments=arguments):
                print(f"asks {name} about {arguments['bird']}")
            case ToolCompleteEvent(tool_name=name, result=result, error=error):
                print(f"{name} says {error or result}")
            case TerminateEvent(reason=reason, final_message=answer):
                print(f"{reason}: {answer}")


asyncio.run(main())
