"""`Team`: coordination written as one coroutine, run like an agent.

Subclass it, say who the members are, and write `conduct`. Everything a run needs (its stream,
cancel, attach, observe, its actor) is the same as an agent's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from tulip_actors.agent.runner import Runner
from tulip_actors.core.ports import RunContext, Runnable
from tulip_actors.host.ports import ActorOptions

ResultT = TypeVar("ResultT")


class Team(Runner[ResultT]):
    """Base of every pattern. It is its own Runnable, and it is copied into its actor.

    Every effect goes through `ctx`, under a key that is unique in the run, so that `conduct` can be
    called again from its start.
    """

    def __init__(
        self,
        name: str,
        *,
        runtime: str | None = None,
        actor: ActorOptions | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(name, kind="team", runtime=runtime, actor=actor, namespace=namespace)

    @property
    def runnable(self) -> Runnable[object]:
        """The team itself."""
        return self

    @abstractmethod
    async def conduct(self, input: str, ctx: RunContext) -> ResultT:
        """Do the job with `ctx.run(member, ...)` and `ctx.complete(model, ...)`."""

    def __repr__(self) -> str:
        names = ", ".join(member.name for member in self.members())
        return f"{type(self).__name__}({self.name!r}, members=[{names}], runtime={self.runtime!r})"
