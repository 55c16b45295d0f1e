"""Every error the package raises on purpose, drawn as one tree.

    TulipError
    ├── ConfigError               the program is wrong: fix it and run again
    │   ├── ModelNotFound         no provider answers to that model string
    │   └── MissingExtra          an optional package is not installed
    ├── ModelError                the model's server, or a double, did not answer well
    │   ├── ModelAuthError        401, 403
    │   ├── ModelThrottled        429 (`retry_after_s`)
    │   ├── ModelInvalidRequest   any other 4xx but 408 and 409: repeating it will not help
    │   ├── ModelUnavailable      unreachable, timed out, 408, 409, 5xx
    │   ├── ModelBadResponse      answered, but not in its wire format
    │   └── ScriptExhausted       a scripted double ran out of turns
    ├── ToolError                 one tool call went wrong; the run goes on
    │   ├── ToolNotFound
    │   ├── ToolArgumentsInvalid
    │   ├── ToolVetoed            a hook forbade the call
    │   └── ToolLost              its worker died: the effect may have happened
    ├── RunError                  one run went wrong
    │   ├── RunNotFound
    │   ├── RunCancelled
    │   ├── RunLost               the process that hosted it is gone
    │   ├── ToolChanged           a call under way is of a tool that is another now, or gone
    │   ├── InterruptNotPending   nothing asks that question (any more)
    │   ├── NotSerialisable       a value cannot be stored (`path`)
    │   ├── StoreUnavailable      where the records are kept cannot be used now
    │   ├── StaleEpoch            a newer incarnation owns the thread
    │   ├── ThreadForgotten       the store has lost what it held of the thread
    │   └── ThreadBusy            another run owns the thread
    ├── ClusterError              Ray, or a process on it, cannot be used
    │   ├── ClusterUnreachable
    │   ├── VersionMismatch
    │   ├── BusRestarted          the bus has begun anew: what it held is gone
    │   └── ActorLost             an actor died and does not come back
    ├── SubscriberLagged          the bus no longer holds what was asked for (`missed`)
    └── RemoteError               an exception of another process that could not travel

Rules that keep them usable across processes: the message is the only positional argument, further
values are optional keywords kept on the instance (so every class survives pickle), and nothing is
a class-level default that Ray's wrapper could show in place of the instance's value.
"""

from __future__ import annotations

from typing import ClassVar


class TulipError(Exception):
    """Root of the tree. `code` is stable across releases; the message says what to do."""

    code: ClassVar[str] = "tulip_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        """The text alone."""
        return str(self.args[0]) if self.args else ""


class ConfigError(TulipError, ValueError):
    """The program asks for something that cannot be; nothing was started."""

    code = "config"


class ModelNotFound(ConfigError):
    """No provider is registered under the prefix of the model string."""

    code = "model_not_found"


class MissingExtra(ConfigError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    code = "missing_extra"


class ModelError(TulipError):
    """A model call failed. `status` is the HTTP status where there was one."""

    code = "model"

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelAuthError(ModelError):
    """The key is missing, wrong or not allowed to use the model."""

    code = "model_auth"


class ModelThrottled(ModelError):
    """The provider asks to slow down. `retry_after_s` is its own hint, if it gave one."""

    code = "model_throttled"

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after_s = retry_after_s


class ModelInvalidRequest(ModelError):
    """The provider refuses this request; sending it again will not help."""

    code = "model_invalid_request"


class ModelUnavailable(ModelError):
    """The server cannot be reached, timed out or failed (5xx)."""

    code = "model_unavailable"


class ModelBadResponse(ModelError):
    """The answer is not what the wire format promises."""

    code = "model_bad_response"


class ScriptExhausted(ModelError):
    """A `ScriptedModel` was asked for more turns than its script has."""

    code = "script_exhausted"


class ToolError(TulipError):
    """One tool call failed. The model is told; the run goes on."""

    code = "tool"


class ToolNotFound(ToolError):
    """The model asked for a tool that the agent does not have."""

    code = "tool_not_found"


class ToolArgumentsInvalid(ToolError):
    """The arguments do not fit the tool's schema; the message tells the model what to send."""

    code = "tool_arguments_invalid"


class ToolVetoed(ToolError):
    """A hook or a human forbade the call."""

    code = "tool_vetoed"


class ToolLost(ToolError):
    """The worker of a started call died: the effect may have happened."""

    code = "tool_lost"


class RunError(TulipError):
    """One run failed. `run_id` names it where it is known."""

    code = "run"

    def __init__(self, message: str = "", *, run_id: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id


class RunNotFound(RunError):
    """No such run here: never started, or already forgotten."""

    code = "run_not_found"


class RunCancelled(RunError):
    """The run was cancelled before it had a result."""

    code = "run_cancelled"


class RunLost(RunError):
    """The process that hosted the run is gone and nothing took it over."""

    code = "run_lost"


class ToolChanged(RunError):
    """A call of the run is not over, and its tool takes other arguments now, or is gone.

    Nothing was executed and nothing changed: with the tool as it was the run goes on.
    """

    code = "tool_changed"


class NotSerialisable(RunError, TypeError):
    """A value cannot be stored or sent. `path` leads to it, as in `metadata.user.client`."""

    code = "not_serialisable"

    def __init__(
        self, message: str = "", *, run_id: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message, run_id=run_id)
        self.path = path


class InterruptNotPending(RunError):
    """Nothing asks that question, or it was answered already. Nothing was changed."""

    code = "interrupt_not_pending"


class StoreUnavailable(RunError):
    """Where records are kept cannot be used now: full, read-only, locked, gone.

    What was stored before stays stored; the message names the thread and the place.
    """

    code = "store_unavailable"


class StaleEpoch(RunError):
    """A newer incarnation has taken over the thread; this one must stop writing."""

    code = "stale_epoch"


class ThreadForgotten(RunError):
    """The store has lost its memory, and with it the thread that was acquired."""

    code = "thread_forgotten"


class ThreadBusy(RunError):
    """Another run holds the thread."""

    code = "thread_busy"


class ClusterError(TulipError):
    """Ray, or a process on it, cannot be used."""

    code = "cluster"


class ClusterUnreachable(ClusterError, ConnectionError):
    """Nothing answers at the cluster's address."""

    code = "cluster_unreachable"


class VersionMismatch(ClusterError):
    """Driver and cluster run different versions of a package that must agree."""

    code = "version_mismatch"


class BusRestarted(ClusterError):
    """The bus lost its memory since the last batch, and has not taken this one."""

    code = "bus_restarted"


class ActorLost(ClusterError):
    """An actor died and does not come back."""

    code = "actor_lost"


class SubscriberLagged(TulipError):
    """The bus has dropped `missed` records after the subscriber's cursor.

    `cursor` continues at the oldest record still held.
    """

    code = "subscriber_lagged"

    def __init__(
        self, message: str = "", *, missed: int | None = None, cursor: str | None = None
    ) -> None:
        super().__init__(message)
        self.missed = missed
        self.cursor = cursor


class RemoteError(TulipError):
    """An exception of another process that could not be pickled: its type and text."""

    code = "remote"
