"""Runs of which one knows the id and no more: whoever has them on the cluster is asked."""

from __future__ import annotations

from typing import Any

from tulip_actors.agent.attach import checked_run
from tulip_actors.agent.handle import RunHandle
from tulip_actors.agent.runner import checked_answer
from tulip_actors.agent.runtimes import runtime_named
from tulip_actors.core.runs import RunRequest


def answer_run(
    run_id: str,
    response: object,
    interrupt_id: str | None = None,
    *,
    runtime: str | None = None,
    namespace: str | None = None,
) -> RunHandle[Any]:
    """Answer a question of a paused run: a handle on the segment that begins.

    Raises `RunNotFound`, `ConfigError` and `NotSerialisable`, here or when the handle is read.
    """
    checked_run(run_id, None)
    answer = checked_answer(response, interrupt_id, None)
    client = runtime_named(runtime, namespace).client_of_run(run_id, None)
    feed = client.begin(RunRequest(run_id, run_id, "", answer=answer), events=True)
    return RunHandle(run_id, feed, client)


async def cancel_run(
    run_id: str, *, at_once: bool, runtime: str | None = None, namespace: str | None = None
) -> None:
    """Let a run stop at its next turn boundary, or at once; confirmed. Raises `RunNotFound`."""
    checked_run(run_id, None)
    client = runtime_named(runtime, namespace).client_of_run(run_id, None)
    await client.acancel([run_id], at_once=at_once)
