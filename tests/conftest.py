"""What every folder shares: one local Ray per session, both runtimes, and the unit tests' guard."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parent
PURE = (TESTS / "unit", TESTS / "properties")
"""Folders whose tests need neither Ray nor a network."""


class NotInAUnitTest(AssertionError):
    """A unit test reached for something that it must do without."""


class _NoRay:
    """Stands first on `sys.meta_path` and refuses the import of Ray."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "ray":
            raise NotInAUnitTest(
                "a test under tests/unit or tests/properties imports ray: "
                "move it to tests/runtime, or use the inline runtime"
            )


@pytest.fixture(autouse=True)
def _pure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under tests/unit and tests/properties: no Ray, no network."""
    if not any(folder in request.path.parents for folder in PURE):
        return

    def no_network(self: socket.socket, address: Any) -> None:
        raise NotInAUnitTest(f"a unit test connects to {address!r}: it must do without a network")

    def no_cluster(*args: object, **kwargs: object) -> None:
        raise NotInAUnitTest("a unit test calls ray.init(): move it to tests/runtime")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket.socket, "connect_ex", no_network)
    monkeypatch.setenv("TULIP_RUNTIME", "inline")
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", no_cluster)
    else:
        monkeypatch.setattr(sys, "meta_path", [_NoRay(), *sys.meta_path])


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """One local Ray for the whole session, started as a first run would start it. Its address."""
    os.environ["TULIP_QUIET"] = "1"
    import ray

    from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
    from tulip_actors.runtime.cluster import connect

    connect(None, DEFAULT_NAMESPACE)
    yield str(ray.get_runtime_context().gcs_address)
    ray.shutdown()


@pytest.fixture(scope="session", params=["inline", "ray"])
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime in turn: what a test says holds in both."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return str(request.param)
