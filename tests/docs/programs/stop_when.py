"""A florist's assistant stops when the stems are put aside and it is sure, or when it has to."""

from tulip_actors.agent import Agent
from tulip_actors.core.termination import (
    ConfidenceMet,
    MaxIterations,
    TokenLimit,
    ToolCalled,
)
from tulip_actors.models import ModelResponse
from tulip_actors.testing import ScriptedModel, tool_call
from tulip_actors.tools.decorator import tool

enough = (ToolCalled("put_aside") & ConfidenceMet(0.25)) | MaxIterations(6) | TokenLimit(500)


@tool
def in_stock(flower: str) -> int:
    """How many stems there are."""
    return {"peony": 40, "lilac": 3}.get(flower, 0)


@tool
def put_aside(flower: str, stems: int) -> str:
    """Keep stems for a customer until tonight."""
    return f"{stems} x {flower}"


def visit(*turns: ModelResponse) -> None:
    """One conversation, and why it ended."""
    florist = Agent(
        model=ScriptedModel(turns), tools=[in_stock, put_aside], reflexion=True, termination=enough
    )
    result = florist.run_sync("A dozen peonies for this evening, please.")
    print(result.stop_reason, result.iterations, result.confidence, result.metrics.total_tokens)


tokens = {"prompt_tokens": 300, "completion_tokens": 20}
visit(
    ModelResponse(tool_call("in_stock", flower="peony")),
    ModelResponse(tool_call("put_aside", flower="peony", stems=12)),
)
visit(
    ModelResponse(tool_call("in_stock", flower="peony"), tokens),
    ModelResponse(tool_call("in_stock", flower="lilac"), tokens),
)
