"""The page's worked example: refund request R-42. Both runtimes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.loop.support import Run, gathered, mark, marks, ran
from tests.runtime.support import types
from tulip_actors import Agent, ReflexionConfig, Role, ToolExecution, tool
from tulip_actors.core.termination import ConfidenceMet, MaxIterations, ToolCalled
from tulip_actors.testing import ScriptedModel, tool_call

PROMPT = "Process refund request R-42: verify order ord-4821, refund if eligible."
ANSWER = "Refunded order ord-4821, receipt RF-58291."
REFUND = {"order_id": "ord-4821", "request_id": "R-42"}


@tool
def lookup_order(order_id: str) -> dict[str, object]:
    """Find an order."""
    return {"order_id": order_id, "returned": True}


def refunding(runtime: str, path: str, *turns: object) -> Agent:
    """The page's agent, whose refunds leave marks in a file."""

    def issue_refund(order_id: str, request_id: str) -> dict[str, object]:
        """Pay the money back."""
        mark(path)
        return {"receipt": "RF-58291"}

    return Agent(
        ScriptedModel(
            [
                tool_call("lookup_order", order_id="ord-4821"),
                tool_call("issue_refund", REFUND),
                *turns,  # type: ignore[list-item]
            ]
        ),
        [lookup_order, tool(idempotent=True)(issue_refund)],
        "You are a customer-support agent.",
        runtime=runtime,
        reflexion=ReflexionConfig(evaluate_every_n_iterations=2),
        termination=(ToolCalled("issue_refund") & ConfidenceMet(0.9)) | MaxIterations(8),
    )


@dataclass
class Refunds:
    """The run as the page tells it; one whose model asks for the refund again on iteration 3; and
    how often the body ran in each."""

    example: Run
    hallucinated: Run
    bodies: tuple[int, int]


@pytest.fixture(scope="module")
def refunds(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Refunds:
    marked = [str(tmp_path_factory.mktemp("refunds") / "bodies") for _ in range(2)]
    again = tool_call("issue_refund", REFUND)
    agents = [refunding(runtime, marked[0], ANSWER), refunding(runtime, marked[1], again, ANSWER)]

    async def both() -> list[Run]:
        runs = await gathered(*[ran(agent, PROMPT) for agent in agents])
        await gathered(*[agent.stop() for agent in agents])
        return runs

    example, hallucinated = asyncio.run(both())
    return Refunds(example, hallucinated, (marks(marked[0]), marks(marked[1])))


@pytest.fixture
def example(refunds: Refunds) -> Run:
    return refunds.example


@pytest.fixture
def hallucinated(refunds: Refunds) -> Run:
    return refunds.hallucinated


def test_the_example_emits_the_pages_events(example: Run) -> None:
    assert types(example.events) == [
        *("think", "tool_start", "tool_complete"),
        *("think", "tool_start", "tool_complete", "reflect"),
        *("think", "terminate"),
    ]


def test_the_example_takes_three_iterations_two_calls_and_one_reflection(
    example: Run,
) -> None:
    assert (
        example.end.iterations_used,
        example.end.total_tool_calls,
        len(example.reflections),
    ) == (3, 2, 1)
    assert [think.iteration for think in example.thinks] == [0, 1, 2]


def test_the_example_ends_complete_with_the_answer(example: Run) -> None:
    assert (example.end.reason, example.end.stop_reason) == ("complete", "complete")
    assert example.end.final_message == example.ok.message == ANSWER
    assert example.ok.success


def test_c5_the_example_reflects_on_iteration_2_and_reaches_0_15(example: Run) -> None:
    (reflection,) = example.reflections
    assert reflection.iteration == 1
    assert reflection.assessment == "on_track"
    assert (reflection.confidence_delta, reflection.new_confidence) == (0.15, 0.15)
    assert example.end.final_confidence == example.ok.confidence == 0.15


def test_the_example_calls_with_the_pages_arguments(example: Run) -> None:
    assert [(start.tool_name, dict(start.arguments)) for start in example.starts] == [
        ("lookup_order", {"order_id": "ord-4821"}),
        ("issue_refund", REFUND),
    ]


def test_the_examples_messages_are_the_conversation(example: Run) -> None:
    assert [message.role for message in example.ok.messages] == [
        *(Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT, Role.TOOL),
        Role.ASSISTANT,
    ]


def test_c20_a_hallucinated_duplicate_is_served_and_the_body_runs_once(
    hallucinated: Run,
) -> None:
    _, first, second = hallucinated.ok.tool_executions
    assert isinstance(second, ToolExecution)
    assert first.result == second.result == '{"receipt":"RF-58291"}'
    assert (first.idempotent_cache_hit, second.idempotent_cache_hit) == (False, True)


def test_c20_the_refunds_body_runs_once_in_either_run(refunds: Refunds) -> None:
    assert refunds.bodies == (1, 1)


def test_c18_the_served_duplicate_emits_both_events_with_no_time(
    hallucinated: Run,
) -> None:
    served = hallucinated.completes[-1]
    assert (served.result, served.error, served.duration_ms) == ('{"receipt":"RF-58291"}', None, 0)
    assert served.worker_pid is None
    assert hallucinated.starts[-1].arguments == REFUND


def test_the_run_with_the_duplicate_ends_complete_too(hallucinated: Run) -> None:
    assert hallucinated.end.reason == "complete"
    assert (hallucinated.end.iterations_used, hallucinated.end.total_tool_calls) == (4, 3)


def test_c23_the_served_duplicate_counts_neither_way(hallucinated: Run) -> None:
    assert [one.new_confidence for one in hallucinated.reflections] == [0.15]
    assert hallucinated.end.final_confidence == 0.15
