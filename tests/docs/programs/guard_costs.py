"""A hook watches what a talkative translator uses, and ends the run before it uses too much."""

from tulip_actors import AgentState
from tulip_actors.agent import Agent
from tulip_actors.hooks.provider import HookProvider
from tulip_actors.models import ModelResponse
from tulip_actors.testing import ScriptedModel, tool_call
from tulip_actors.tools.decorator import tool


class Allowance(HookProvider):
    """At most so many tokens; looked at when a turn begins."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    async def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        if state.total_tokens_used > self.tokens:
            raise RuntimeError(f"turn {iteration}: {state.total_tokens_used} tokens are too many")


@tool
def look_up(word: str) -> str:
    """Find a word in the dictionary."""
    return {"Tulpe": "tulip", "Rose": "rose"}[word]


usage = {"prompt_tokens": 50, "completion_tokens": 10}
translator = Agent(
    model=ScriptedModel(
        [
            ModelResponse(tool_call("look_up", word=word), usage)
            for word in ("Tulpe", "Rose", "Tulpe")
        ]
    ),
    tools=[look_up],
    hooks=[Allowance(100)],
)
try:
    translator.run_sync("Translate the label.")
except RuntimeError as error:
    print(error)
