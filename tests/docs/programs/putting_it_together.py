"""Everything at once: the desk of a plant nursery replaces a delivery that froze on the way."""

import asyncio
import os
import tempfile

from tulip_actors import Message
from tulip_actors.agent import Agent
from tulip_actors.core.events import ReflectEvent, TerminateEvent, ThinkEvent, ToolStartEvent
from tulip_actors.core.termination import ConfidenceMet, MaxIterations, ToolCalled
from tulip_actors.hooks.builtin import StructuredLoggingHook
from tulip_actors.memory.backends import FileCheckpointer
from tulip_actors.testing import ScriptedModel, text, tool_call
from tulip_actors.tools.decorator import tool


@tool
def find_delivery(number: str) -> str:
    """What a delivery held, and how it travelled."""
    return {"D-77": "twelve camellias, in a lorry without heating"}[number]


@tool(idempotent=True)
def send_again(number: str, ticket: str) -> dict[str, str]:
    """Send a delivery once more; once per ticket."""
    return {"number": number, "parcel": f"P-{ticket}"}


folder = tempfile.mkdtemp()
found = tool_call("find_delivery", number="D-77").tool_calls
agent = Agent(
    model=ScriptedModel(
        [
            tool_call("find_delivery", number="D-78"),
            Message.assistant("A slip: I look for D-77.", found),
            tool_call("send_again", number="D-77", ticket="T-9"),
        ]
    ),
    tools=[find_delivery, send_again],
    system_prompt="You work at the desk of a nursery.",
    reflexion=True,
    checkpointer=FileCheckpointer(folder),
    hooks=[StructuredLoggingHook()],
    termination=(ToolCalled("send_again") & ConfidenceMet(0.2)) | MaxIterations(5),
)


async def main() -> None:
    async for event in agent.run("Ticket T-9: delivery D-77 froze.", thread_id="winter-77"):
        match event:
            case ThinkEvent(reasoning=thought) if thought:
                print("thinks:", thought)
            case ToolStartEvent(tool_name=name):
                print("calls", name)
            case ReflectEvent(guidance=advice) if advice:
                print("is advised")
            case TerminateEvent(reason=reason):
                print("ends:", reason)


asyncio.run(main())
later = Agent(model=ScriptedModel([text("P-T-9.")]), checkpointer=FileCheckpointer(folder))
result = later.run_sync("Which parcel?", thread_id="winter-77")
print(bool(os.listdir(folder)), result.messages[1].content)
