"""Which processes serve an agent beside its own: for who wants to see them, or to kill them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tulip_actors.errors import ClusterError
from tulip_actors.runtime.failures import ask


async def helpers(services: Any, namespace: str) -> Mapping[str, Sequence[int]]:
    """The process ids of the services actor, of this node's dispatcher and of its workers. Those
    that do not answer, or are not there, are left out."""
    from tulip_actors.runtime.spawn import dispatcher_name, existing_actor

    found = dict(await _processes_of(services, "the services actor"))
    try:
        dispatcher = existing_actor(dispatcher_name(), namespace)
    except ValueError:
        return found
    return {**found, **await _processes_of(dispatcher, "the dispatcher")}


async def _processes_of(actor: Any, what: str) -> Mapping[str, Sequence[int]]:
    try:
        return cast(Mapping[str, Sequence[int]], await ask(actor.processes.remote(), what))
    except ClusterError:
        return {}
