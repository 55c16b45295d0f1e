"""Connecting this process to a cluster: attach, or start a local Ray, once and quietly."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

import ray

from tulip_actors.errors import ClusterUnreachable, VersionMismatch
from tulip_actors.host.portal import portal
from tulip_actors.runtime.environment import CONNECT_TIMEOUT_S, host_and_port
from tulip_actors.runtime.services import Versions
from tulip_actors.runtime.spawn import services_actor

HELLO_TIMEOUT_S = 60.0
"""The first program on a cluster starts the services actor, whose worker may have to come up."""

TOKEN_HINT = ". A cluster with token authentication also needs RAY_AUTH_MODE=token and its token"

_lock = threading.Lock()
_state = {"attached": False}
_checked: set[str] = set()


def connect(address: str | None, namespace: str, *, start: bool = True) -> None:
    """Make sure this process is connected. Blocking; any number of times, from any thread.

    In this order: the Ray this process already uses, `address`, RAY_ADDRESS, a new local Ray (or,
    with `start=False`, one that runs on this machine already). Raises `ClusterUnreachable` and
    `VersionMismatch`.
    """
    with _lock:
        if not ray.is_initialized():
            # registered after Ray's own exit handler, so it runs before: a call under way while
            # Ray shuts down would abort the process
            atexit.register(portal().close)
            _checked.clear()
            chosen = address or os.environ.get("RAY_ADDRESS")
            if chosen in (None, "local") and start:
                _in_lasting_thread(_start_local)
            else:
                _attach(chosen or "auto")
            end_on_sigterm()
        if namespace not in _checked:
            services_actor(namespace)
            if _state["attached"]:
                _compare_versions(namespace)
            _checked.add(namespace)


def _in_lasting_thread(work: Callable[[], None]) -> None:
    """Do `work` in a thread that lives as long as the process.

    The kernel ends the processes of a local Ray with the thread that started them.
    """
    if threading.current_thread() is threading.main_thread():
        work()
        return
    outcome: Future[None] = Future()

    def lasting() -> None:
        try:
            work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)
        threading.Event().wait()

    threading.Thread(target=lasting, name="tulip-ray", daemon=True).start()
    outcome.result()


def is_connected() -> bool:
    """Whether this process uses a Ray already."""
    return bool(ray.is_initialized())


def end_on_sigterm() -> None:
    """Let SIGTERM end this program in order, so that a local Ray ends with it.

    To be called in the main thread after connecting. Ray sets up the same when it is connected
    there, but from any other thread its C++ part would abort the program. A handler that the
    program has set itself stays.
    """
    ours = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and (
        ours is signal.SIG_DFL or getattr(ours, "__module__", "").startswith("ray.")
    ):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _start_local() -> None:
    ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
    _state["attached"] = False
    cpus = int(ray.cluster_resources().get("CPU", 0))
    _announce(f"started a local Ray ({cpus} CPUs); set RAY_ADDRESS to use a cluster")


def _attach(address: str) -> None:
    _probe(address)
    try:
        ray.init(address=address, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ClusterUnreachable(_unreachable(address, str(error)) + TOKEN_HINT) from None
    except ValueError as error:  # not an address at all
        raise ClusterUnreachable(_unreachable(address, str(error))) from None
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            raise VersionMismatch(str(error)) from None
        raise ClusterUnreachable(_unreachable(address, str(error))) from None
    _state["attached"] = True
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    found = ray.get_runtime_context().gcs_address
    _announce(f"connected to the Ray cluster at {found} ({nodes} node{'s'[: nodes != 1]})")


def _probe(address: str) -> None:
    """Ask whether a gRPC server listens there.

    Ray itself waits minutes for a head that is not there, or for one that is something else; so
    the port is tried first: an HTTP/2 server answers the client's preface with a SETTINGS frame.
    """
    host, port = host_and_port(address)
    if port is None:
        return  # "auto": Ray itself knows where to look
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as probe:
            probe.sendall(preface)
            header = probe.recv(9)
    except OSError as error:
        raise ClusterUnreachable(_unreachable(address, str(error))) from None
    if len(header) < 4 or header[3] != 4:
        raise ClusterUnreachable(_unreachable(address, "what listens there is no Ray head"))


def _unreachable(address: str, reason: str) -> str:
    if address == "auto":
        return (
            "no Ray cluster runs on this machine. Start one (a program that uses tulip_actors, or "
            "`ray start --head`), or name one by --address or RAY_ADDRESS (HOST:PORT of its head)"
        )
    first = reason.strip().splitlines()[0] if reason.strip() else "no answer"
    return (
        f"no Ray cluster answers at {address}: {first}. Check --address or RAY_ADDRESS "
        "(HOST:PORT of the head, by default port 6379); without either, a program starts a Ray here"
    )


def _compare_versions(namespace: str) -> None:
    here = Versions.here()
    hello = services_actor(namespace).hello.remote()
    try:
        there = cast(Versions, ray.get(hello, timeout=HELLO_TIMEOUT_S))
    except ray.exceptions.GetTimeoutError:
        raise ClusterUnreachable(
            f"the cluster did not start the services actor within {HELLO_TIMEOUT_S:.0f} s: "
            "look at `ray status`; it needs a node that can start a worker process"
        ) from None
    except ray.exceptions.RayError as error:
        raise VersionMismatch(
            f"the cluster cannot run tulip_actors {here.tulip_actors}: "
            f"{str(error).strip().splitlines()[-1]}. Install that version on every node"
        ) from None
    if there != here:
        raise VersionMismatch(
            f"this program uses tulip_actors {here.tulip_actors} on Python {here.python}, the "
            f"cluster {there.tulip_actors} on Python {there.python}: install the same on both "
            "(and restart the cluster, whose services actor keeps the version it began with)"
        )


def _announce(text: str) -> None:
    """One line for a person; TULIP_QUIET=1 leaves it out."""
    if not os.environ.get("TULIP_QUIET"):
        sys.stderr.write(f"tulip_actors: {text}\n")
        sys.stderr.flush()
