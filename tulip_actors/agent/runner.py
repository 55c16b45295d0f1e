"""What Agent and Team share: starting runs on a host, following, cancelling, observing it.

What may live here: the handle's side of a run, once for both. What a run does is its Runnable's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast

from tulip_actors.agent.attach import Attach, checked_run
from tulip_actors.agent.handle import EventHandler, RunHandle, RunStream
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE, checked_runtime, runtime_named
from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.frozen import EMPTY, freeze, freeze_object
from tulip_actors.core.ports import Runnable
from tulip_actors.core.runs import Answer, OnBusy, RunRequest, RunStarted
from tulip_actors.errors import ConfigError, RunNotFound
from tulip_actors.host.feed import Feed
from tulip_actors.host.portal import portal
from tulip_actors.host.ports import ActorOptions, AgentStatus, HostClient, HostSpec

ResultT = TypeVar("ResultT")


class RunOptions(TypedDict, total=False):
    """What a run may be given beside its prompt.

    `thread_id` continues a conversation; without one the run is its own. `metadata` travels to
    tools and state. `stream_tokens` asks for ModelChunkEvents. `model_kwargs` go to the model.
    """

    thread_id: str | None
    metadata: Mapping[str, object]
    stream_tokens: bool
    model_kwargs: Mapping[str, object]


class Runner(ABC, Generic[ResultT]):
    """A handle on something that can be run. It may be pickled and used in other processes.

    `name` is a label; identity is a generated id, so a handle that was pickled before the first
    run names the same actor as the original.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: str,
        runtime: str | None,
        actor: ActorOptions | None,
        namespace: str | None,
        callback_handler: EventHandler | None = None,
    ) -> None:
        if callback_handler is not None and not callable(callback_handler):
            raise ConfigError(
                f"callback_handler: give a function of an event, not {callback_handler!r:.80}"
            )
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"name: give a label such as 'reviewer', not {name!r:.80}")
        if namespace is not None and (not isinstance(namespace, str) or not namespace.strip()):
            raise ConfigError(f"namespace: give text that is not empty, not {namespace!r:.80}")
        if actor is not None and not isinstance(actor, ActorOptions):
            raise ConfigError(f"actor: give ActorOptions(...), not {actor!r:.80}")
        self._name = name
        self.id = RandomIds().new(kind)
        self.runtime = checked_runtime(runtime)
        self.options = actor or ActorOptions()
        self.namespace = namespace or DEFAULT_NAMESPACE
        self._handlers: tuple[EventHandler, ...] = (
            () if callback_handler is None else (callback_handler,)
        )
        self._host: HostClient | None = None
        self._runs: dict[str, tuple[str, Feed]] = {}
        self._last_run: str | None = None

    @property
    def name(self) -> str:
        """The label in events and lists."""
        return self._name

    @property
    @abstractmethod
    def runnable(self) -> Runnable[object]:
        """What the host conducts."""

    @property
    def on_busy(self) -> OnBusy:
        """What a run does whose thread another run holds: a team's is refused."""
        return "refuse"

    def members(self) -> Sequence[Runner[Any]]:
        """What a run of this one will run in turn: their actors are made together with ours."""
        return ()

    # running

    def run(self, prompt: str, **options: Unpack[RunOptions]) -> RunStream[ResultT]:
        """`async for event in agent.run(...)`: the run's typed events, its TerminateEvent last.

        The run lives as long as it is read: leaving the loop cancels it. Raises what the run
        raised, after the TerminateEvent. Options: `RunOptions`.
        """
        request = self._request(prompt, **options)

        async def start() -> RunHandle[ResultT]:
            return self.begin(request)

        return RunStream(start)

    async def arun(self, prompt: str, **options: Unpack[RunOptions]) -> ResultT:
        """Run to the end and return the result. Cancelling the awaiting task cancels the run."""
        return await self.result_of(self._request(prompt, **options))

    def run_sync(self, prompt: str, **options: Unpack[RunOptions]) -> ResultT:
        """`arun` from code that is not async: a script, a thread, a notebook, a Ray task."""
        self.warm()
        return portal().call_blocking(self.arun(prompt, **options))

    def start(self, prompt: str, **options: Unpack[RunOptions]) -> RunHandle[ResultT]:
        """Start a run that goes on by itself; returns at once. A failed start shows in `result`.

        The first one in code that is not async connects to the cluster, and raises what fails in
        that.
        """
        return self.begin(self._request(prompt, **options))

    def begin(self, request: RunRequest) -> RunHandle[ResultT]:
        """Start exactly this run; returns at once. What `start` and teams build on."""
        return self._handle(request, self._begin(request, events=True))

    attach = Attach()

    def attach_here(self, run_id: str, after: str | None = None) -> RunHandle[ResultT]:
        """`attach` with this agent or team, which takes the run up if nobody has it."""
        checked_run(run_id, after)
        client = self._client
        if run_id not in self._runs:
            runtime = runtime_named(self.runtime, self.namespace)
            client = runtime.client_of_run(run_id, self._spec)
        return RunHandle(run_id, client.follow(run_id), client, after)

    # answering

    def resume(
        self, response: object, interrupt_id: str | None = None, thread_id: str | None = None
    ) -> RunStream[ResultT]:
        """Answer a question of a paused run and go on with it: its events, as of `run`.

        The run is the one that `interrupt_id` belongs to, else the last one of the thread, else
        the last one that this handle started. The id may be left out when one question is open.
        The run goes on once its last question is answered; until then the segment ends at once
        as "interrupted".
        Raises `InterruptNotPending` for a wrong or answered id, which changes nothing.
        """
        answer = checked_answer(response, interrupt_id, thread_id)

        async def start() -> RunHandle[ResultT]:
            return self.begin(await self._answer(answer, thread_id))

        return RunStream(start)

    async def aresume(
        self, response: object, interrupt_id: str | None = None, thread_id: str | None = None
    ) -> ResultT:
        """`resume` to the end of the segment: its result."""
        answer = checked_answer(response, interrupt_id, thread_id)
        return await self.result_of(await self._answer(answer, thread_id))

    def resume_sync(
        self, response: object, interrupt_id: str | None = None, thread_id: str | None = None
    ) -> ResultT:
        """`aresume` from code that is not async."""
        self.warm()
        return portal().call_blocking(self.aresume(response, interrupt_id, thread_id))

    # steering

    def cancel(self, run_id: str | None = None, thread_id: str | None = None) -> None:
        """Ask runs to stop at their next turn boundary; returns without waiting.

        Without an argument: the active runs that this handle started. Runs started later are not
        touched.
        """
        self._client.cancel(self._chosen(run_id, thread_id), at_once=False)

    async def acancel(self, run_id: str | None = None, thread_id: str | None = None) -> None:
        """`cancel`, confirmed: when it returns the host knows."""
        chosen = self._chosen(run_id, thread_id)
        await self._client.acancel(chosen, at_once=False)

    async def observe(self) -> AgentStatus:
        """The host at a glance: name, id, pid, node, restarts, active runs, queued calls."""
        return await self._client.observe()

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """The ids of the processes that serve the host, each on its node: "agent", "worker",
        "dispatcher" and "services"; for fault tests (`tulip_actors.testing.faults`)."""
        return await self._client.processes()

    async def stop(self, drain_s: float = 0) -> None:
        """End the host: running runs get `drain_s` to end, then they are cancelled."""
        if self._host is not None:
            host, self._host = self._host, None
            await host.stop(drain_s)

    def warm(self) -> None:
        """Begin to make the host and those of the members; returns without waiting."""
        self._client.warm()
        for member in self.members():
            member.warm()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # inside

    @property
    def _client(self) -> HostClient:
        if self._host is None:
            self._host = runtime_named(self.runtime, self.namespace).client(self._spec)
        return self._host

    @property
    def _spec(self) -> HostSpec:
        return HostSpec(self.id, self.name, self.runnable, self.options, self.namespace)

    def _begin(self, request: RunRequest, *, events: bool) -> Feed:
        self.warm()
        self._runs = {run: known for run, known in self._runs.items() if not known[1].closed}
        feed = self._client.begin(request, events=events)
        self._runs[request.run_id] = (request.thread_id, feed)
        if request.answer is None:
            self._last_run = request.run_id
        return feed

    async def result_of(self, request: RunRequest) -> ResultT:
        """Run exactly this to its end; what `arun` builds on."""
        feed = self._begin(request, events=bool(self._handlers))
        handle = self._handle(request, feed)
        try:
            if self._handlers:
                await handle.told()
            return cast(ResultT, await feed.ended())
        except BaseException:  # also what a handler raised: nobody follows the run any more
            handle.cancel()
            raise

    def _handle(self, request: RunRequest, feed: Feed) -> RunHandle[ResultT]:
        return RunHandle(request.run_id, feed, self._client, handlers=self._handlers)

    def _request(self, prompt: str, **options: Unpack[RunOptions]) -> RunRequest:
        return replace(_request(prompt, **options), on_busy=self.on_busy)

    async def _answer(self, answer: Answer, thread_id: str | None) -> RunRequest:
        """The request that takes an answer to its run."""
        if answer.interrupt_id is not None:
            run_id: str | None = answer.interrupt_id.partition("/")[0]
        elif thread_id is not None:
            records = await self._client.records(thread_id)
            started = [one.run_id for one in records if isinstance(one, RunStarted)]
            run_id = started[-1] if started else None
        else:
            run_id = self._last_run
        if not run_id:
            raise RunNotFound(
                f"there is no run on thread {thread_id!r}"
                if thread_id is not None
                else "this handle has started no run; give the interrupt_id of the InterruptEvent, "
                "or the thread_id"
            )
        return RunRequest(run_id, thread_id or run_id, "", answer=answer)

    def _chosen(self, run_id: str | None, thread_id: str | None) -> list[str]:
        if run_id is not None:
            return [run_id]
        return [
            run
            for run, (thread, feed) in self._runs.items()
            if not feed.closed and thread_id in (None, thread)
        ]

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        state["_host"], state["_runs"] = None, {}
        state["_handlers"] = ()  # they belong to this process
        return state


def _request(
    prompt: str,
    thread_id: str | None = None,
    metadata: Mapping[str, object] = EMPTY,
    stream_tokens: bool = False,
    model_kwargs: Mapping[str, object] = EMPTY,
) -> RunRequest:
    if not isinstance(prompt, str):
        raise ConfigError(f"prompt: give text, not {type(prompt).__name__}")
    freeze(prompt, "prompt")
    checked_id("thread_id", thread_id)
    run_id = RandomIds().new("run")
    return RunRequest(
        run_id=run_id,
        thread_id=thread_id or run_id,
        input=prompt,
        metadata=freeze_object(metadata or EMPTY, "metadata"),
        stream_tokens=stream_tokens,
        model_kwargs=freeze_object(model_kwargs or EMPTY, "model_kwargs"),
    )


def checked_id(name: str, id: str | None) -> None:
    """Raise `ConfigError` for an id that is given and no text, or empty."""
    if id is not None and (not isinstance(id, str) or not id):
        raise ConfigError(f"{name}: give text that is not empty, not {id!r:.80}")
    freeze(id, name)


def checked_answer(response: object, interrupt_id: str | None, thread_id: str | None) -> Answer:
    """An answer with an id of its own. Raises `ConfigError` and `NotSerialisable`."""
    checked_id("interrupt_id", interrupt_id)
    checked_id("thread_id", thread_id)
    return Answer(freeze(response, "response"), interrupt_id, RandomIds().new("answer"))
