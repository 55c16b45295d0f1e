"""`attach`: a handle on a run that somebody else started, or that was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tulip_actors.agent.handle import Cursor, RunHandle
from tulip_actors.agent.runtimes import runtime_named
from tulip_actors.core.frozen import freeze
from tulip_actors.errors import ConfigError

if TYPE_CHECKING:
    from tulip_actors.agent.runner import Runner

ResultT = TypeVar("ResultT")


class Attach:
    """The method `attach` of agents and teams, which their classes have too.

    `agent.attach(run_id, after=None)` gives a handle on a run, wherever it is: under way, ended, or
    lost with its process. Whoever has the run is asked, another actor or the agent's own; one that
    was lost goes on from its records. Its events begin after the cursor `after` (None = at the
    run's start).

    `Agent.attach(run_id, after=None, runtime=None, namespace=None)`, without an agent, finds what
    the cluster (RAY_ADDRESS) hosts, and starts nothing.

    Raises `RunNotFound`, here or when the handle is read, and `ConfigError` for what is no id or
    cursor.
    """

    @overload
    def __get__(self, runner: None, owner: type[object]) -> Callable[..., RunHandle[Any]]: ...
    @overload
    def __get__(
        self, runner: Runner[ResultT], owner: type[object]
    ) -> Callable[..., RunHandle[ResultT]]: ...
    def __get__(
        self, runner: Runner[ResultT] | None, owner: type[object]
    ) -> Callable[..., RunHandle[Any]]:
        return attach_to_any if runner is None else runner.attach_here


def attach_to_any(
    run_id: str,
    after: str | None = None,
    *,
    runtime: str | None = None,
    namespace: str | None = None,
) -> RunHandle[Any]:
    """A handle on a run that is hosted on the cluster, or in this process. See `Attach`."""
    checked_run(run_id, after)
    client = runtime_named(runtime, namespace).client_of_run(run_id, None)
    return RunHandle(run_id, client.follow(run_id), client, after)


def checked_run(run_id: str, after: str | None) -> None:
    """Raise `ConfigError` for what is no run id, or no cursor."""
    if not isinstance(run_id, str) or not run_id:
        raise ConfigError(f"run_id: give the id of a run, not {run_id!r:.80}")
    freeze(run_id, "run_id")
    Cursor(after)
