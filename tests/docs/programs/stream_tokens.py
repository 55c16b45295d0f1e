"""A poem is shown while it is written; the chunk of a tool call has no text."""

import asyncio

from tulip_actors.agent import Agent
from tulip_actors.core.events import ModelChunkEvent
from tulip_actors.testing import ScriptedModel, text, tool_call
from tulip_actors.tools.decorator import tool


@tool
def rhymes_with(word: str) -> list[str]:
    """Words that rhyme."""
    return {"spring": ["wing", "sing"]}[word]


agent = Agent(
    model=ScriptedModel(
        [tool_call("rhymes_with", word="spring"), text("It is spring, and the bulbs sing.")]
    ),
    tools=[rhymes_with],
)


async def main() -> None:
    silent = 0
    async for event in agent.run("A line about spring.", stream_tokens=True):
        match event:
            case ModelChunkEvent(tool_calls=deltas) if deltas:
                silent += event.content is None
            case ModelChunkEvent(done=True):
                print("|")
            case ModelChunkEvent() if event.content:
                print(event.content, end="")
    print("chunks without text:", silent)

    plain = [event async for event in agent.run("A line about spring.")]
    print("not asked for:", sum(isinstance(event, ModelChunkEvent) for event in plain))


asyncio.run(main())
