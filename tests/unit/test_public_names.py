"""What can be imported, from where, and at what price."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import patterns
import tulip_actors

CONTRACT = {
    "Agent",
    "tool",
    "AgentState",
    "AgentResult",
    "Message",
    "Role",
    "ToolCall",
    "ToolContext",
    "HookProvider",
    "EventBus",
    "Runnable",
    "Team",
    "RunContext",
    "RunHandle",
    "Shared",
    "ActorOptions",
    "AgentStatus",
    "current_run",
    "interrupt",
    "AgentConfig",
    "ThinkEvent",
    "ToolStartEvent",
    "ToolCompleteEvent",
    "ModelChunkEvent",
    "ModelCompleteEvent",
    "ReflectEvent",
    "GroundingEvent",
    "InterruptEvent",
    "TerminateEvent",
    "SpecialistStartEvent",
    "SpecialistCompleteEvent",
    "OrchestratorDecisionEvent",
    "CausalNodeEvent",
    "CausalEdgeEvent",
}
"""What the documentation imports from `tulip_actors`."""
NOT_BUILT_YET = {"Shared"}
MODULES = {
    "tulip_actors.agent": ["Agent", "AgentConfig", "AgentResult", "ActorOptions"],
    "tulip_actors.core.events": ["LoopEvent", "AgentEvent", "AllEvents", "InterruptEvent"],
    "tulip_actors.core.termination": [
        "MaxIterations",
        "AndCondition",
        "OrCondition",
        "TerminationCondition",
    ],
    "tulip_actors.core.state": ["AgentState", "ToolExecution", "ReasoningStep"],
    "tulip_actors.core.messages": ["Message", "Role", "ToolCall", "ToolResult"],
    "tulip_actors.tools": ["tool", "Tool", "ToolRegistry", "ToolContext"],
    "tulip_actors.tools.decorator": ["tool", "Tool"],
    "tulip_actors.tools.registry": ["ToolRegistry"],
    "tulip_actors.tools.context": ["ToolContext"],
    "tulip_actors.models": ["ModelResponse", "register_provider", "get_model"],
    "tulip_actors.testing": ["ScriptedModel", "FunctionModel", "text", "tool_call", "tool_calls"],
    "patterns": ["Orchestrator", "OrchestratorResult", "Specialist", "SpecialistResult"],
}


def python(source: str) -> str:
    """What a fresh interpreter prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_holds_the_names_of_the_contract_that_are_built() -> None:
    assert set(tulip_actors.__all__) >= CONTRACT - NOT_BUILT_YET


def test_a_name_that_was_built_is_no_longer_listed_as_missing() -> None:
    assert not NOT_BUILT_YET & set(tulip_actors.__all__)


def test_all_is_sorted_and_free_of_repeats() -> None:
    assert list(tulip_actors.__all__) == sorted(set(tulip_actors.__all__))


@pytest.mark.parametrize("package", [tulip_actors, patterns])
def test_every_name_in_all_can_be_imported(package: Any) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_star_import_gives_exactly_all() -> None:
    scope: dict[str, Any] = {}
    exec("from tulip_actors import *", scope)
    assert set(scope) - {"__builtins__"} == set(tulip_actors.__all__)


def test_dir_shows_the_public_names() -> None:
    assert set(tulip_actors.__all__) <= set(dir(tulip_actors))


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="NoSuchThing"):
        _ = tulip_actors.NoSuchThing


@pytest.mark.parametrize(("module", "names"), MODULES.items())
def test_the_documented_module_paths_exist(module: str, names: list[str]) -> None:
    imported = importlib.import_module(module)
    assert [name for name in names if not hasattr(imported, name)] == []


def test_a_name_is_the_same_object_wherever_it_is_imported_from() -> None:
    for module, names in MODULES.items():
        for name in names:
            if name in tulip_actors.__all__:
                assert getattr(importlib.import_module(module), name) is getattr(tulip_actors, name)


def test_importing_the_package_imports_neither_ray_nor_httpx() -> None:
    heavy = python(
        """
        import sys, tulip_actors
        print(sorted({"ray", "httpx", "griffe", "msgpack._heavy"} & set(sys.modules)))
        """
    )
    assert heavy == "[]"


def test_using_every_public_name_imports_neither_ray_nor_httpx() -> None:
    heavy = python(
        """
        import sys
        from tulip_actors import *
        import patterns, tulip_actors.testing
        print(sorted({"ray", "httpx"} & set(sys.modules)))
        """
    )
    assert heavy == "[]"


def test_every_room_but_runtime_works_where_ray_is_not_installed() -> None:
    imported = python(
        """
        import importlib, pkgutil, sys
        sys.modules["ray"] = None
        import patterns, tulip_actors
        count = 0
        for package in (tulip_actors, patterns):
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                if module.name.startswith("tulip_actors.runtime") or "__main__" in module.name:
                    continue
                importlib.import_module(module.name)
                count += 1
        print(count)
        """
    )
    assert int(imported) > 40


def test_an_agent_runs_inline_where_ray_is_not_installed() -> None:
    said = python(
        """
        import sys
        sys.modules["ray"] = None
        from tulip_actors import Agent
        from tulip_actors.testing import ScriptedModel
        print(Agent(ScriptedModel(["hi"]), runtime="inline").run_sync("x").message)
        """
    )
    assert said == "hi"


def test_the_package_is_typed() -> None:
    for package in (tulip_actors, patterns):
        from pathlib import Path

        assert (Path(package.__path__[0]) / "py.typed").exists()


def test_importing_does_not_print_or_start_threads() -> None:
    assert (
        python(
            """
            import threading, tulip_actors, patterns
            names = [thread.name for thread in threading.enumerate()]
            assert names == ["MainThread"], names
            """
        )
        == ""
    )
