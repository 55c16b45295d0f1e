"""Whether all of an agent can go to the process of its actor, asked when the agent is made."""

from __future__ import annotations

from collections.abc import Iterator

from tulip_actors.errors import ConfigError
from tulip_actors.host.travel import Part, obstacle
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.loop.config import AgentConfig


def check_that_it_travels(runnable: AgentRunnable) -> None:
    """Raise `ConfigError` that names what cannot travel, where it is, and the way out.

    Ray is imported, to be asked whether it really cannot, only where there is something to ask.
    """
    found = obstacle(_parts(runnable.config))
    if found is None:
        return
    from tulip_actors.runtime.pickling import pack_runnable

    try:
        pack_runnable(runnable, runnable.name)
    except ConfigError as error:
        raise ConfigError(
            f"{runnable.name!r} cannot be sent to its actor's process: {found}. Build clients, "
            "locks and connections where they are used (inside the function, at a hook's first "
            'call), or pass a factory; with runtime="inline" nothing has to be sent'
        ) from error


def _parts(config: AgentConfig) -> Iterator[Part]:
    for name, tool in config.tools.items():
        yield Part(f"tool {name!r}", tool)
    for hook in config.hooks:
        yield Part(f"hook {type(hook).__name__}", hook)
    for field, value in config:
        if field not in ("tools", "hooks"):
            yield Part(field, value)
