"""What cannot travel is refused when the agent is made (F40). No cluster is used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import pytest

from tulip_actors import Agent, ConfigError, HookProvider, tool
from tulip_actors.core.termination import CustomCondition
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.models.openai_chat import OpenAIChatModel
from tulip_actors.runtime.pickling import pack, pack_runnable
from tulip_actors.testing import ScriptedModel


class Client:
    """Something that connects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()


CLIENT = Client()


class Guard(HookProvider):
    """A hook with a client."""

    def __init__(self) -> None:
        self.client = Client()


class Locked(ScriptedModel):
    """A model with a client."""

    def __init__(self) -> None:
        super().__init__(["hi"])
        self.client = Client()


def paying() -> Any:
    client = Client()

    @tool
    def pay(n: int) -> str:
        """Pay n."""
        return f"{n} by {client}"

    return pay


def made(runtime: str = "ray", model: Any = None, **options: Any) -> Agent:
    return Agent(model or ScriptedModel(["hi"]), name="bob", runtime=runtime, **options)


LOCK = "Client._lock is a _thread.lock"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tools": [paying()]}, f"tool 'pay': closure variable 'client' -> {LOCK}"),
        ({"hooks": [Guard()]}, f"hook Guard: Guard.client -> {LOCK}"),
        ({"model": Locked()}, f"model: Locked.client -> {LOCK}"),
        ({"termination": CustomCondition(lambda state, c=CLIENT: False)}, LOCK),
        ({"system_prompt": lambda metadata, c=CLIENT: "x"}, "system_prompt: default of 'c' ->"),
    ],
)
def test_f40_what_cannot_travel_is_refused_when_the_agent_is_made(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        made(**options)
    assert told in refused.value.message
    assert refused.value.message.startswith("'bob' cannot be sent to its actor's process: ")
    assert "Build clients, locks and connections where they are used" in refused.value.message
    made("inline", **options)


def test_f40_an_open_file_is_refused_and_not_sent_as_what_it_holds() -> None:
    with open(__file__) as file:

        @tool
        def reads() -> str:
            """Read."""
            return file.read()

        with pytest.raises(ConfigError, match=r"closure variable 'file' is a _io.TextIOWrapper"):
            made(tools=[reads])


def test_what_only_looks_as_if_it_could_not_travel_is_not_refused() -> None:
    """Ray, or the user by way of Ray, may know how to send it: packing has the last word."""
    keys = OrderedDict.fromkeys("ab").keys()

    @tool
    def reads() -> list[str]:
        """Read."""
        return list(keys)

    made(tools=[reads])


def test_keys_never_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model holds the name of the variable, which is read where the call is made."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-this-process")
    monkeypatch.setenv("OTHER_KEY", "sk-other-secret")
    for model in (OpenAIChatModel("m"), OpenAIChatModel("m", api_key_env="OTHER_KEY"), "openai:m"):
        agent = made(model=model)
        runnable = agent.runnable
        assert isinstance(runnable, AgentRunnable)
        for packed in (pack_runnable(runnable, "bob"), pack(agent, "a handle")):
            assert b"sk-" not in packed
        assert runnable.setup("tools").model is not None  # the model is made, as the actor does
        assert b"sk-" not in pack(runnable, "one that has run")
