"""What the agent room sees of Ray: hosts, and the bus of a cluster."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast
from weakref import WeakValueDictionary

import ray

from tulip_actors.core.ports import BusLog, RunStore
from tulip_actors.errors import RunNotFound
from tulip_actors.host.ports import HostClient, HostSpec
from tulip_actors.runtime.client import RayClient
from tulip_actors.runtime.cluster import connect
from tulip_actors.runtime.pickling import pack_runnable
from tulip_actors.runtime.service_clients import ClusterBusLog, ClusterRunStore
from tulip_actors.runtime.spawn import agent_actor, existing_actor, services_actor

NAME_FREE_TIMEOUT_S = 5.0
FIND_S = 30.0


class RayRuntime:
    """Makes hosts as actors of the cluster this process uses."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._clients: WeakValueDictionary[str, RayClient] = WeakValueDictionary()

    def client(self, spec: HostSpec) -> HostClient:
        """The client of a host; the same one for the same id."""
        client = self._clients.get(spec.id)
        if client is None:
            client = RayClient(
                spec.name, self.namespace, partial(self._make, spec), partial(_end, spec)
            )
            self._clients[spec.id] = client
        return client

    def client_of_run(self, run_id: str, otherwise: HostSpec | None) -> HostClient:
        """See `Runtime`."""
        name = f"run {run_id}" if otherwise is None else otherwise.name
        return RayClient(
            name, self.namespace, partial(self._find_host, run_id, otherwise), ray.kill
        )

    def _find_host(self, run_id: str, otherwise: HostSpec | None) -> Any:
        """The actor that has a run. Raises `RunNotFound`."""
        connect(None, self.namespace, start=otherwise is not None)
        found = ray.get(services_actor(self.namespace).host_of.remote(run_id), timeout=FIND_S)
        try:
            return existing_actor(cast(str, found), self.namespace)
        except ValueError:
            if otherwise is not None:
                return self._make(otherwise)
            raise RunNotFound(
                f"no agent or team on this cluster has a run {run_id} (in the namespace "
                f"{self.namespace!r}); one whose checkpointer has its records can take it up: "
                "attach with that agent itself",
                run_id=run_id,
            ) from None

    def bus(self, address: str | None) -> BusLog:
        """The bus of a running cluster; none is started. Raises `ClusterUnreachable`."""
        connect(address, self.namespace, start=False)
        return ClusterBusLog(lambda: services_actor(self.namespace))

    def store(self, id: str) -> RunStore:
        """The memory of the cluster this process uses, which is started if it must be."""
        connect(None, self.namespace)
        return ClusterRunStore(lambda: services_actor(self.namespace), id, bundled=False)

    def _make(self, spec: HostSpec) -> Any:
        connect(None, self.namespace)
        packed = pack_runnable(spec.runnable, spec.name)
        return agent_actor(packed, spec.id, spec.name, spec.namespace, spec.options)


def _end(spec: HostSpec, actor: Any) -> None:
    """End an actor and wait until its name is free, so that the next run may make it anew."""
    ray.kill(actor, no_restart=True)
    deadline_s = time.monotonic() + NAME_FREE_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            existing_actor(spec.id, spec.namespace)
        except ValueError:
            return
        time.sleep(0.02)
