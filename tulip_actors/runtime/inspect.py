"""A running cluster from outside: who hosts which runs, how each is, and how one is emptied."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import ray

from tulip_actors.core.run_info import RunInfo
from tulip_actors.errors import ActorLost
from tulip_actors.host.ports import AgentStatus
from tulip_actors.memory.run_infos import infos_of
from tulip_actors.runtime.cluster import connect
from tulip_actors.runtime.failures import translated
from tulip_actors.runtime.service_clients import ClusterRunStore
from tulip_actors.runtime.services import HostEntry
from tulip_actors.runtime.spawn import existing_actor, services_actor

ANSWER_TIMEOUT_S = 3.0
"""How long one look waits for all hosts together."""
DRAIN_ANSWER_S = 60.0
"""How long a drained agent may take, beyond its time, to store what it leaves."""


def list_agents(
    address: str | None, namespace: str
) -> Sequence[tuple[HostEntry, AgentStatus | None]]:
    """Every host that announced itself, with its status, or None if it does not answer.

    Blocking. Hosts whose actor is gone for good are left out. Raises `ClusterUnreachable`.
    """
    asked = _asked(address, namespace, "observe")
    return [(entry, cast(AgentStatus | None, status)) for entry, status in asked]


def list_hosted(address: str | None, namespace: str) -> Sequence[RunInfo]:
    """The runs that are on the hosts of a cluster, or have ended there not long ago.

    Blocking. Hosts that do not answer are left out. Raises `ClusterUnreachable`.
    """
    asked = _asked(address, namespace, "runs")
    return [info for _, infos in asked for info in cast(Sequence[RunInfo], infos or ())]


def list_runs(address: str | None, namespace: str) -> Sequence[RunInfo]:
    """The same, and all other runs that the cluster's own memory holds.

    Of threads that are kept elsewhere it knows what the hosts say.
    """
    hosted = list_hosted(address, namespace)
    services = services_actor(namespace)
    store = ClusterRunStore(lambda: services, bundled=False)
    known = {one.run_id for one in hosted}
    return [*hosted, *asyncio.run(infos_of(store, without=known))]


def drain_agent(
    address: str | None, namespace: str, agent_id: str, drain_s: float
) -> Sequence[str]:
    """Let an agent's runs end for up to `drain_s`, leave the others, end its actor.

    Blocking. Returns the ids of the runs that are left. Raises `ActorLost` when there is no such
    agent, `ClusterError` when it does not answer, and `ClusterUnreachable`.
    """
    connect(address, namespace, start=False)
    try:
        actor = existing_actor(agent_id, namespace)
    except ValueError:
        raise ActorLost(
            f"there is no agent {agent_id} on this cluster (in the namespace {namespace!r}): "
            "`tulip-actors ps` lists those there are"
        ) from None
    try:
        left = ray.get(actor.drain.remote(drain_s), timeout=drain_s + DRAIN_ANSWER_S)
    except ray.exceptions.RayError as error:
        raise translated(error, f"the actor of {agent_id}") from None
    ray.kill(actor, no_restart=True)
    return cast(Sequence[str], left)


def _asked(
    address: str | None, namespace: str, method: str
) -> Sequence[tuple[HostEntry, object | None]]:
    """Every host that announced itself and is there, with its answer; None without one."""
    connect(address, namespace, start=False)
    announced = ray.get(services_actor(namespace).hosts.remote(), timeout=ANSWER_TIMEOUT_S)
    entries: list[HostEntry] = []
    calls: list[Any] = []
    for entry in cast(Sequence[HostEntry], announced):
        try:
            actor = existing_actor(entry.id, namespace)
            calls.append(getattr(actor, method).remote())
        except ValueError:
            continue
        entries.append(entry)
    answered, _ = (
        ray.wait(calls, num_returns=len(calls), timeout=ANSWER_TIMEOUT_S) if calls else ([], [])
    )
    return [(entry, _answer(call, answered)) for entry, call in zip(entries, calls, strict=True)]


def _answer(call: Any, answered: Sequence[Any]) -> object | None:
    if call not in answered:
        return None
    try:
        return cast(object, ray.get(call))
    except ray.exceptions.RayError:
        return None
