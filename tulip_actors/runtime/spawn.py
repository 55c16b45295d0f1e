"""Every `ray.remote` of the project, with its options.

The classes stay plain, so they can be read, inherited and tested without Ray. Names, not handles,
are passed on: a restarted actor finds its helpers again by looking them up.
"""

from __future__ import annotations

import json
import threading
import warnings
from functools import cache
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tulip_actors.core.calls import ToolDemand
from tulip_actors.core.defaults import derived_id
from tulip_actors.core.frozen import canonical
from tulip_actors.host.ports import ActorOptions
from tulip_actors.runtime.agent_actor import AgentActor
from tulip_actors.runtime.dispatcher import Dispatcher
from tulip_actors.runtime.services import Services
from tulip_actors.runtime.store_actor import StoreActor
from tulip_actors.runtime.tool_work import WorkerSpec
from tulip_actors.runtime.tool_worker import serve

SERVICES = "tulip.services"
CONTROL_THREADS = 4
"""Cancel, observe and runs have a lane of their own: a busy loop never keeps them waiting."""
CALLS_AT_ONCE = 10_000
HEAD = "node:__internal_head__"
"""A resource that Ray gives to the head alone."""


@cache
def _services_class() -> Any:
    return ray.remote(Services)


@cache
def _dispatcher_class() -> Any:
    return ray.remote(Dispatcher)


@cache
def _store_class() -> Any:
    return ray.remote(StoreActor)


@cache
def _agent_class() -> Any:
    for name in ("cancel", "observe", "runs"):
        method = getattr(AgentActor, name)
        setattr(AgentActor, name, ray.method(concurrency_group="control")(method))
    remote: Any = ray.remote  # its overloads know no concurrency_groups
    return remote(concurrency_groups={"control": CONTROL_THREADS})(AgentActor)


@cache
def _worker_task() -> Any:
    # Ray's own retries are off: whether a body may run twice is for its tool to say
    return ray.remote(max_retries=0)(serve)


def services_actor(namespace: str) -> Any:
    """The cluster's services actor, made if it is not there. It outlives every program.

    It runs on the head: any other node may be lost, and with it what the memory there holds.
    """
    return (
        _services_class()
        .options(
            name=SERVICES,
            namespace=namespace,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            resources={HEAD: 0.001},
            max_restarts=-1,
            max_concurrency=CALLS_AT_ONCE,
        )
        .remote()
    )


def dispatcher_name() -> str:
    """What the dispatcher of this job on this node is called."""
    return f"tulip.dispatcher.{this_job_id()}.{this_node_id()}"


def dispatcher_actor(name: str, namespace: str, node_id: str) -> Any:
    """A node's dispatcher for one job, made there if it is not; it ends itself when unused."""
    return (
        _dispatcher_class()
        .options(
            name=name,
            namespace=namespace,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=True),
        )
        .remote(name)
    )


def store_actor(packed: bytes, location: str, namespace: str, node_id: str) -> Any:
    """The actor that serves a store in files to other nodes, made on theirs if it is not there.

    It outlives every program, as the files do.
    """
    return (
        _store_class()
        .options(
            name=f"tulip.store.{derived_id('files', node_id, location)}",
            namespace=namespace,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        .remote(packed)
    )


def agent_actor(packed: bytes, id: str, name: str, namespace: str, options: ActorOptions) -> Any:
    """The actor of an agent or team, made if it is not there."""
    return (
        _agent_class()
        .options(
            name=id,
            namespace=namespace,
            get_if_exists=True,
            lifetime="detached" if options.detached else None,
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            memory=options.memory,
            resources=options.resources or None,
            max_restarts=options.max_restarts,
            max_concurrency=CALLS_AT_ONCE,
        )
        .remote(packed, id, name, namespace)
    )


def wake_up_if_restarted() -> None:
    """In the constructor of an agent's actor: let one whose process ended before call itself."""
    context = ray.get_runtime_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's property asks another one that it calls deprecated
        was_restarted = context.was_current_actor_reconstructed
    if was_restarted:
        actor = context.current_actor
        threading.Thread(target=actor.wake_up.remote, name="tulip-wake-up").start()


def existing_actor(id: str, namespace: str) -> Any:
    """The handle of a named actor. Raises ValueError when there is none."""
    return ray.get_actor(id, namespace=namespace)


def tool_worker(spec: WorkerSpec, demand: ToolDemand, node_id: str | None, dispatcher: Any) -> Any:
    """Start a worker as a task, on the node named or else on any that has what its calls demand.

    Returns the reference that is done when it has ended.
    """
    return (
        _worker_task()
        .options(
            name=f"tulip.{spec.kind}",
            num_cpus=demand.num_cpus or 0,
            num_gpus=demand.num_gpus or 0,
            memory=demand.memory_bytes,
            resources=dict(demand.resources) or None,
            label_selector=dict(demand.label_selector) or None,
            runtime_env=demand.runtime_env and json.loads(canonical(demand.runtime_env)),
            scheduling_strategy="SPREAD"
            if node_id is None
            else NodeAffinitySchedulingStrategy(node_id, soft=True),
        )
        .remote(spec, dispatcher)
    )


def this_node_id() -> str:
    """The id of the node this process runs on."""
    return ray.get_runtime_context().get_node_id()


def this_job_id() -> str:
    """The id of the job this process works for."""
    return ray.get_runtime_context().get_job_id()
