"""What docs/migrating.md tells users of the pages is so."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import tulip_actors.core.events
import tulip_actors.hooks
from tests.docs.support import on_runtime, printed_by

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "migrating.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_c16_its_program_shows_that_on_ray_a_hook_is_copied(runtime: str, tmp_path: Path) -> None:
    (block,) = BLOCKS
    program = tmp_path / "program.py"
    program.write_text(block)
    printed = printed_by([program], tmp_path, **on_runtime(runtime))
    assert printed == [{"ray": "0 1\n", "inline": "1 1\n"}[runtime]]


@pytest.mark.parametrize("path", ["agent.runtime_loop", "hooks.events"])
def test_module_paths_that_it_says_are_gone_are_gone(path: str) -> None:
    assert path in TEXT
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"tulip_actors.{path}")


@pytest.mark.parametrize("event", ["BeforeToolCall", "AfterToolCall", "BeforeModelCall"])
def test_hook_events_exist_once(event: str) -> None:
    assert hasattr(tulip_actors.hooks, f"{event}Event")
    assert not hasattr(tulip_actors.core.events, f"{event}Event")


@pytest.mark.parametrize("event", ["BeforeInvocationEvent", "AfterInvocationEvent"])
def test_invocation_events_are_not_defined(event: str) -> None:
    assert event in TEXT
    assert not hasattr(tulip_actors.core.events, event)
    assert not hasattr(tulip_actors.hooks, event)


def test_every_deviation_of_the_contract_is_told() -> None:
    contract = (DOCS / "contract.md").read_text()
    deviations = [
        line.split()[1]
        for line in contract.splitlines()
        if line.startswith("- C") and "**D**" in line
    ]
    assert deviations
    assert [one for one in deviations if f"({one})" not in TEXT] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
