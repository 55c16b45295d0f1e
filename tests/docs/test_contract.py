"""Every line of the contract and of the field reports has a test that names it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = {
    name: re.findall(r"^- ([CF]\d+)\b", (ROOT / "docs" / name).read_text(), re.MULTILINE)
    for name in ("contract.md", "field_reports.md")
}


@cache
def named_by_tests() -> frozenset[str]:
    """Every line that the name or the docstring of a test names, as in `test_c5_...` or "C5"."""
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_"):
                named.update(re.findall(r"_([cf]\d+)(?=_)", node.name))
                named.update(re.findall(r"\b[CF]\d+\b", ast.get_docstring(node) or ""))
    return frozenset(one.upper() for one in named)


@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines])
def test_a_line_has_a_test_that_names_it(line: str) -> None:
    assert line in named_by_tests()


@pytest.mark.parametrize("name", LINES)
def test_the_lines_are_in_order_and_stand_there_once(name: str) -> None:
    numbers = [int(line[1:]) for line in LINES[name]]
    assert numbers == sorted(set(numbers))
