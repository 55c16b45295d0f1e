"""Ground: does the final answer follow from what the tools found?

Runs on an answer that would end the run by itself, when the run has called tools. Emits
GroundingEvent; an answer that fails is sent back with what was missed, as often as the config
allows. The judge is the `Grounder` of the config.
"""

from __future__ import annotations

from tulip_actors.core.events import GroundingEvent
from tulip_actors.core.grounding import GroundingResult
from tulip_actors.core.messages import Message, Role
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Grounded
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import Ending
from tulip_actors.loop.finish import NATURAL_END, final_text
from tulip_actors.loop.nodes import Setup
from tulip_actors.memory.fold import grounded

NOTE = "grounding"
"""The `name` of a system message that sends an answer back."""
GROUNDING_FAILED = Ending("grounding_failed", "grounding_failed")


def grounding_due(setup: Setup, state: AgentState, ctx: RunContext, ending: Ending | None) -> bool:
    """Whether this ending is an answer to be checked; a part that `resume` continues is not."""
    return (
        ending is NATURAL_END
        and setup.config.grounding is not None
        and state.calls_made > 0
        and ctx.request.answer is None
    )


async def ground(
    setup: Setup, state: AgentState, ctx: RunContext
) -> tuple[AgentState, Ending | None]:
    """The state with the judgement, and the run's ending: None when the answer is sent back."""
    config = setup.config.grounding
    assert config is not None, "asked only when it is due"
    evidence = [one for one in state.tool_executions if one.run_id == state.run_id and one.success]
    result: object = await config.evaluator.evaluate(final_text(state), evidence)
    if not isinstance(result, GroundingResult):
        judge = type(config.evaluator).__name__
        raise TypeError(
            f"{judge}.evaluate returned {type(result).__name__}; "
            "return a GroundingResult of ClaimEvaluation objects"
        )
    fails = result.score < config.threshold
    sent_back = sum(message.name == NOTE for message in state.said_last())
    ctx.emit(
        GroundingEvent(
            score=result.score,
            claims_evaluated=len(result.claims),
            ungrounded_claims=result.ungrounded_claims,
            requires_replan=fails,
        )
    )
    again = fails and sent_back < config.max_replans
    notes = (Message(Role.SYSTEM, _guidance(result), name=NOTE),) if again else ()
    judgement = Grounded(*ctx.stamp(), result, notes)
    ctx.record(judgement)
    ending = None if again else GROUNDING_FAILED if fails else NATURAL_END
    return grounded(state, judgement), ending


def _guidance(result: GroundingResult) -> str:
    weakest = sorted(result.claims, key=lambda one: one.support)[:3]
    quoted = "\n".join(f"- {one.claim}" for one in weakest)
    return (
        "Your answer is not supported by what the tools returned. Look again, or leave out what "
        f"you cannot support:\n{quoted}"
    )
