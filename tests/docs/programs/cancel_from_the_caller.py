"""A visitor walks away while the guide is still talking: whoever awaits a run may cancel it."""

import asyncio
from collections.abc import Sequence

from tulip_actors import Message, TulipEvent
from tulip_actors.agent import Agent
from tulip_actors.core.events import ToolStartEvent
from tulip_actors.testing import FunctionModel, text, tool_call
from tulip_actors.tools.decorator import tool


@tool
async def tell_the_whole_story(topic: str) -> str:
    """Takes the afternoon."""
    await asyncio.sleep(4 * 3600)
    return topic


def guide(messages: Sequence[Message], tools: object) -> Message:
    """Answers the short question, and begins the long story."""
    if "short" in messages[-1].content:
        return text("It was built in 1897.")
    return tool_call("tell_the_whole_story", topic=messages[-1].content)


async def main() -> None:
    story_begun = asyncio.Event()

    def listen(event: TulipEvent) -> None:
        if isinstance(event, ToolStartEvent):
            story_begun.set()

    async with Agent(
        model=FunctionModel(guide), tools=[tell_the_whole_story], callback_handler=listen
    ) as agent:
        run = asyncio.create_task(agent.arun("Tell me about the glasshouse."))
        await story_begun.wait()
        run.cancel()
        try:
            await run
        except asyncio.CancelledError:
            print("the story was cut off")
        print((await agent.arun("In short: how old is it?")).text)


asyncio.run(main())
