"""Every Python block of the README runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_first_program_has_fifteen_lines_at_most() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.parametrize("position", range(len(BLOCKS)))
def test_a_python_block_of_the_readme_runs_when_copied(
    position: int, ray_cluster: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(BLOCKS[position])
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        check=False,
        text=True,
        timeout=90,
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": ray_cluster, "RAY_AUTH_MODE": "token"},
    )
    assert done.returncode == 0, done.stderr
    expected = EXPECTED.get(position)
    assert expected is None or expected in done.stdout, done.stdout


EXPECTED = {
    0: "They add up to 2870.",
    1: "[complete] It is eligible.",
    2: "interrupted ['Refund R-42?']\nRF-58291",
    3: "I may not do that. ['Error: delete was not called: only files below scratch/",
    4: "True {'pricing': '40.00', 'policy': 'Returns within 30 days.'}",
}


def test_files_and_commands_that_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for script in re.findall(r"^(scripts/\w+)", README, re.MULTILINE):
        assert (ROOT / script).exists(), script
