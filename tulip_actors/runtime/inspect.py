"""Looking at a running cluster from outside: who hosts runs, and how each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import ray

from tulip_actors.host.ports import AgentStatus
from tulip_actors.runtime.cluster import connect
from tulip_actors.runtime.services import HostEntry
from tulip_actors.runtime.spawn import existing_actor, services_actor

ANSWER_TIMEOUT_S = 3.0
"""How long one look waits for all hosts together."""


def list_agents(
    address: str | None, namespace: str
) -> Sequence[tuple[HostEntry, AgentStatus | None]]:
    """Every host that announced itself, with its status, or None if it does not answer.

    Blocking. Hosts whose actor is gone for good are left out. Raises `ClusterUnreachable`.
    """
    connect(address, namespace, start=False)
    announced = ray.get(services_actor(namespace).hosts.remote(), timeout=ANSWER_TIMEOUT_S)
    entries: list[HostEntry] = []
    calls: list[Any] = []
    for entry in cast(Sequence[HostEntry], announced):
        try:
            calls.append(existing_actor(entry.id, namespace).observe.remote())
        except ValueError:
            continue
        entries.append(entry)
    answered, _ = (
        ray.wait(calls, num_returns=len(calls), timeout=ANSWER_TIMEOUT_S) if calls else ([], [])
    )
    return [(entry, _status(call, answered)) for entry, call in zip(entries, calls, strict=True)]


def _status(call: Any, answered: Sequence[Any]) -> AgentStatus | None:
    if call not in answered:
        return None
    try:
        return cast(AgentStatus, ray.get(call))
    except ray.exceptions.RayError:
        return None
