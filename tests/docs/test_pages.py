"""For every code block of the two pages a program of our own, with the same imports and calls.

Each runs as it stands, on both runtimes, and says what it has to say.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.support import on_runtime, printed_by

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Block:
    """What a block of a page imports, calls and matches, and what our program for it prints."""

    imports: str
    calls: str
    printed: str


BLOCKS = {
    "stop_when": Block(
        "core.termination: MaxIterations ToolCalled ConfidenceMet TokenLimit",
        "MaxIterations ToolCalled ConfidenceMet TokenLimit",
        "terminal_tool 2 0.2775 0\ntoken_budget 2 0.2775 640\n",
    ),
    "guard_costs": Block(
        "hooks.provider: HookProvider",
        "RuntimeError",
        "turn 2: 120 tokens are too many\n",
    ),
    "cancel_from_the_caller": Block(
        "",
        "create_task arun cancel",
        "the story was cut off\nIt was built in 1897.\n",
    ),
    "putting_it_together": Block(
        "agent: Agent\n"
        "tools.decorator: tool\n"
        "memory.backends: FileCheckpointer\n"
        "core.termination: MaxIterations ToolCalled ConfidenceMet\n"
        "hooks.builtin: StructuredLoggingHook",
        "tool Agent FileCheckpointer StructuredLoggingHook ToolCalled ConfidenceMet MaxIterations "
        "run ThinkEvent ToolStartEvent ReflectEvent TerminateEvent",
        "calls find_delivery\n"
        "is advised\n"
        "thinks: A slip: I look for D-77.\n"
        "calls find_delivery\n"
        "calls send_again\n"
        "ends: ToolCalled & ConfidenceMet\n"
        "True Ticket T-9: delivery D-77 froze.\n",
    ),
    "match_events": Block(
        "core.events: ThinkEvent ToolStartEvent ToolCompleteEvent TerminateEvent",
        "run ThinkEvent ToolStartEvent ToolCompleteEvent TerminateEvent",
        "thinks: I read this week's reports.\n"
        "asks sightings about kingfisher\n"
        'sightings says ["weir","mill pond"]\n'
        "asks sightings about dodo\n"
        "sightings says LookupError: nobody reported a dodo\n"
        "thinks: Try the weir; about the dodo I have no news.\n"
        "complete: Try the weir; about the dodo I have no news.\n",
    ),
    "stream_tokens": Block(
        "",
        "run",
        "|\nIt is spring, and the bulbs sing.|\nchunks without text: 1\nnot asked for: 0\n",
    ),
    "time_the_specialists": Block(
        "",
        "run SpecialistStartEvent SpecialistCompleteEvent ToolCompleteEvent",
        "soil begins: Two hundred crocuses\n"
        "buyer begins: Two hundred crocuses\n"
        "the order is out\n"
        "['buyer', 'soil'] True\n",
    ),
}


def source(name: str) -> str:
    return (PROGRAMS / f"{name}.py").read_text()


def imported(tree: ast.AST) -> set[str]:
    """Every `module: name` that a program imports from the package."""
    return {
        f"{node.module.removeprefix('tulip_actors.')}: {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def called(tree: ast.AST) -> set[str]:
    """Every function, method and class that a program calls, or matches on."""
    calls = {named(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return calls | {named(node.cls) for node in ast.walk(tree) if isinstance(node, ast.MatchClass)}


@pytest.fixture(scope="module")
def printed(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program printed, all of them on one runtime."""
    paths = [PROGRAMS / f"{name}.py" for name in BLOCKS]
    told = printed_by(paths, tmp_path_factory.mktemp("pages"), **on_runtime(runtime))
    return dict(zip(BLOCKS, told, strict=True))


def test_every_program_stands_for_a_block() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(BLOCKS)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_program_has_the_imports_and_calls_of_its_block(name: str) -> None:
    tree, block = ast.parse(source(name)), BLOCKS[name]
    for line in filter(None, block.imports.split("\n")):
        module, names = line.split(": ")
        assert {f"{module}: {one}" for one in names.split()} <= imported(tree)
    assert set(block.calls.split()) <= called(tree)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_program_can_be_read_at_a_glance(name: str) -> None:
    assert 15 <= len([line for line in source(name).splitlines() if line.strip()]) <= 55


@pytest.mark.parametrize("name", BLOCKS)
def test_a_program_prints_what_it_should_on_either_runtime(
    name: str, printed: dict[str, str]
) -> None:
    assert printed[name] == BLOCKS[name].printed
