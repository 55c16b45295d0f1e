"""Every Python block of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.support import printed_by

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

EXPECTED = {
    0: "They add up to 2870.",
    1: "[complete] It is eligible.",
    2: "interrupted ['Refund R-42?']\nRF-58291",
    3: '"time_difference":"+9.0h"',
    4: "I may not do that. ['Error: delete was not called: only files below scratch/",
    5: "True {'pricing': '40.00', 'policy': 'Returns within 30 days.'}",
    6: "Paid.",
}


@pytest.fixture(scope="module")
def printed(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("readme")
    paths = [folder / f"program_{position}.py" for position in range(len(BLOCKS))]
    for path, block in zip(paths, BLOCKS, strict=True):
        path.write_text(block)
    return printed_by(paths, folder, RAY_ADDRESS=ray_cluster)


def test_the_first_program_has_fifteen_lines_at_most() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.parametrize("position", range(len(BLOCKS)))
def test_a_python_block_of_the_readme_runs_when_copied(position: int, printed: list[str]) -> None:
    assert not printed[position].endswith("FAILED"), printed[position]
    assert EXPECTED.get(position, "") in printed[position]


def test_c16_the_readme_says_what_is_copied_before_it_comes_to_tools() -> None:
    before_tools, _, _ = README.partition("## Tools")
    assert "is copied when its actor starts" in before_tools


def test_files_and_commands_that_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for script in re.findall(r"^(scripts/\w+)", README, re.MULTILINE):
        assert (ROOT / script).exists(), script
