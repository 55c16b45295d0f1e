"""What is measured in one Python file, and how files add up.

Pure functions of a file's text. The `measure_...` tools are the child calls of the team's scans:
they run in workers. The `summarise_...` functions make of their results what a model is told, and
what the report says.
"""

from __future__ import annotations

import ast
import time
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from tulip_actors import ToolError, tool

WORST = 1
"""How many of the worst a model is told: a small one confuses longer answers."""
PARSE_ATTEMPTS = 50
"""Python 3.11 may fail a parse with a SystemError when several threads parse at once."""

Facts: TypeAlias = dict[str, Any]
"""What was measured, as JSON."""


def read_source(path: Path) -> str:
    """The text of a file in the encoding it declares. Raises OSError, SyntaxError, ValueError."""
    with tokenize.open(path) as file:
        return file.read()


def _tree(folder: str, path: str, source: str | None) -> tuple[str, ast.Module]:
    """A file's text and syntax tree. Raises what keeps it from being read: the call's error."""
    text = read_source(Path(folder, path)) if source is None else source
    for _ in range(PARSE_ATTEMPTS):
        with suppress(SystemError):
            return text, ast.parse(text, path)
        time.sleep(0.002)  # let the other thread finish
    raise ToolError(f"Python's parser failed {PARSE_ATTEMPTS} times: try again")


# --- size and complexity ---------------------------------------------------------------------

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler),
    *(ast.comprehension, ast.match_case, ast.Assert),
)


@tool
def measure_complexity(folder: str, path: str, source: str | None = None) -> Facts:
    """Lines, functions, the longest and the most complex function of one file."""
    text, tree = _tree(folder, path, source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    longest = max(functions, key=_length, default=None)
    complex_ = max(functions, key=complexity, default=None)
    return {
        "path": path,
        "lines": text.count("\n") + (not text.endswith("\n") and text != ""),
        "functions": len(functions),
        "longest": longest and {"name": longest.name, "lines": _length(longest)},
        "complex": complex_ and {"name": complex_.name, "complexity": complexity(complex_)},
    }


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def complexity(function: ast.AST) -> int:
    """Cyclomatic: 1 + branches + the further operands of and/or; inner functions count apart."""
    count = 1
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        count += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        pending.extend(ast.iter_child_nodes(node))
    return count


def summarise_complexity(found: Facts, worst: int = WORST) -> Facts:
    """Totals and the worst, short enough for a small model."""
    files: list[Facts] = found["measured"]
    longest = sorted((f for f in files if f["longest"]), key=lambda f: -f["longest"]["lines"])
    complex_ = sorted((f for f in files if f["complex"]), key=lambda f: -f["complex"]["complexity"])
    return {
        "files": found["files"],
        "unreadable": found["unreadable"],
        "lines": sum(f["lines"] for f in files),
        "functions": sum(f["functions"] for f in files),
        "longest": [{"path": f["path"], **f["longest"]} for f in longest[:worst]],
        "most_complex": [{"path": f["path"], **f["complex"]} for f in complex_[:worst]],
    }


# --- documentation ---------------------------------------------------------------------------


@tool
def measure_documentation(folder: str, path: str, source: str | None = None) -> Facts:
    """Modules, classes and functions of one file, and how many have no docstring."""
    _, tree = _tree(folder, path, source)
    counts = {"modules": 1, "classes": 0, "functions": 0}
    missing = {"modules": int(not ast.get_docstring(tree)), "classes": 0, "functions": 0}
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
            kind = "classes" if isinstance(node, ast.ClassDef) else "functions"
            counts[kind] += 1
            missing[kind] += not ast.get_docstring(node)
    return {"path": path, **counts, "missing": missing}


def summarise_documentation(found: Facts, worst: int = WORST) -> Facts:
    """Totals and the worst, short enough for a small model."""
    files: list[Facts] = found["measured"]
    kinds = ("modules", "classes", "functions")
    lacking = sorted(files, key=lambda f: -sum(f["missing"].values()))
    return {
        "files": found["files"],
        "unreadable": found["unreadable"],
        **{kind: sum(f[kind] for f in files) for kind in kinds},
        "missing": {kind: sum(f["missing"][kind] for f in files) for kind in kinds},
        "worst": [
            {"path": f["path"], "missing": sum(f["missing"].values())} for f in lacking[:worst]
        ],
    }


# --- risky calls -----------------------------------------------------------------------------

_RISKY = ("eval", "exec", "os.system", "pickle.load", "pickle.loads")


@tool
def measure_risk(folder: str, path: str, source: str | None = None) -> Facts:
    """The risky calls of one file: what, and in which line."""
    _, tree = _tree(folder, path, source)
    names = dict(_imported(tree))
    risks = [
        {"line": node.lineno, "what": what}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.ExceptHandler) and (what := _risk(node, names))
    ]
    return {"path": path, "risks": sorted(risks, key=lambda risk: risk["line"])}


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What the file's names stand for: `import subprocess as sp`, `from os import system`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.asname, one.name) for one in node.names if one.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _risk(node: ast.Call | ast.ExceptHandler, names: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.ExceptHandler):
        return "bare except" if node.type is None else None
    called = _dotted(node.func, names)
    if called in _RISKY:
        return called
    options = {one.arg: one.value for one in node.keywords}
    shell = options.get("shell")
    if called.startswith("subprocess.") and isinstance(shell, ast.Constant) and shell.value is True:
        return f"{called} with shell=True"
    if called == "yaml.load":
        loader = options.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
        safe = loader is not None and _dotted(loader, names).endswith("SafeLoader")
        return None if safe else "yaml.load without SafeLoader"
    return None


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return "?"


def summarise_risk(found: Facts, worst: int = WORST) -> Facts:
    """Totals by kind and the worst files, short enough for a small model."""
    files: list[Facts] = found["measured"]
    kinds: dict[str, int] = {}
    for risk in (risk for f in files for risk in f["risks"]):
        kinds[risk["what"]] = kinds.get(risk["what"], 0) + 1
    risky = sorted((f for f in files if f["risks"]), key=lambda f: -len(f["risks"]))
    return {
        "files": found["files"],
        "unreadable": found["unreadable"],
        "risky_calls": sum(kinds.values()),
        "kinds": dict(sorted(kinds.items())),
        "worst": [{"path": f["path"], "risky_calls": len(f["risks"])} for f in risky[:worst]],
    }
