"""The report's numbers are those of an independent count over the same files."""

from __future__ import annotations

import ast
import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tulip_actors import ConfigError, Message, Role, ToolCompleteEvent
from tulip_actors.testing import FunctionModel, text, tool_call

ROOT = Path(__file__).parents[2]
BROKEN = {
    "broken.py": b"def f(:\n",
    "sub/nul.py": b"x = 1\n\x00",
    "sub/binary.py": b"\xff\xfe\x80",
}


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TULIP_RUNTIME", "inline")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the library's own files, with some that cannot be read and some to be left out."""
    folder = tmp_path / "some project (größe)"
    for file in sorted((ROOT / "tulip_actors").rglob("*.py")):
        copy = folder / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    risky = "import os\nfrom subprocess import run as go\ntry:\n    go('x', shell=True)\nexcept:\n"
    (folder / "risky.py").write_text(risky + "    os.system('y')\n    eval('1')\n")
    (folder / "latin.py").write_bytes("# coding: latin-1\r\nname = 'größe'\r\n".encode("latin-1"))
    (folder / "empty.py").write_bytes(b"")
    for path, content in BROKEN.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    for left_out in (".hidden/a.py", "pkg/__pycache__/b.py", "env/c.py", "notes.txt"):
        (folder / left_out).parent.mkdir(parents=True, exist_ok=True)
        (folder / left_out).write_text("eval('1')\n")
    (folder / "env" / "pyvenv.cfg").write_text("")
    return folder


def obedient(label: str, *wrong: str) -> FunctionModel:
    """Chooses everybody, and calls its tool with the right folder after some wrong ones."""

    def answer(messages: Sequence[Message], tools: Sequence[object] | None) -> Message:
        if not tools:
            ids = ["complexity", "documentation", "risk"]
            return text(json.dumps({"specialists": ids, "reasoning": "all"}))
        last = messages[-1]
        if last.role is Role.TOOL and not last.is_error:
            return text("done")
        tried = sum(message.role is Role.TOOL for message in messages)
        folder = wrong[tried] if tried < len(wrong) else label
        return tool_call(tools[0].name, folder=folder)  # type: ignore[attr-defined]

    return FunctionModel(answer)


async def finished(audit, project: Path, model: FunctionModel, out: Path):
    job = audit.job(project, model)
    handle = job.team.start(job.task, metadata=job.metadata)
    events = [event async for event in handle.events()]
    result = await handle.result()
    job.deliver(result, events, out)
    return job, result, events


_BRANCHES = {
    "If", "IfExp", "For", "AsyncFor", "While", "ExceptHandler", "comprehension", "match_case",
    "Assert",
}  # fmt: skip


class Count:
    """Counts in another way than the example does: recursively, from a syntax tree's root."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: list[int] = []
        self.lengths: list[int] = []
        self.missing: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._visit(tree)

    def _visit(self, node: ast.AST) -> int:
        """Counts what is below; returns the branches that belong to the function around it."""
        own = int(type(node).__name__ in _BRANCHES)
        if isinstance(node, ast.BoolOp):
            own += len(node.values) - 1
        own += sum(self._visit(child) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Module):
            self._documented(node.body, "modules")
        elif isinstance(node, ast.ClassDef):
            self._documented(node.body, "classes")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._documented(node.body, "functions")
            self.lengths.append(len(range(node.lineno, (node.end_lineno or 0) + 1)))
            self.functions.append(1 + own)
            return 0
        return own

    def _documented(self, body: list[ast.stmt], kind: str) -> None:
        self.kinds[kind] += 1
        match body:
            case [ast.Expr(value=ast.Constant(value=str(text))), *_] if text:
                return
        self.missing[kind] += 1


def readable(project: Path) -> dict[str, bytes]:
    """The files that count, found in another way than the example finds them."""
    return {
        file.relative_to(project).as_posix(): file.read_bytes()
        for file in project.rglob("*.py")
        if not {".hidden", "__pycache__", "env"} & set(file.parts)
        and file.relative_to(project).as_posix() not in BROKEN
    }


def row(report: str, first: str) -> list[str]:
    """The cells of a table's row that begins so."""
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]


async def test_the_numbers_of_the_report_are_those_of_an_independent_count(
    audit, project, tmp_path
):
    job, result, events = await finished(
        audit, project, obedient(audit.label_of(project)), tmp_path
    )
    assert job.problem(result, events) is None
    report = (tmp_path / "report.md").read_text()
    files = readable(project)
    counts = [Count(ast.parse(content)) for content in files.values()]

    totals = report.split("## Size and complexity")[1].splitlines()[4]
    lines = sum(len(content.splitlines()) for content in files.values())
    functions = sum(len(one.functions) for one in counts)
    cells = [int(cell.replace(",", "")) for cell in totals.strip("| ").split("|")]
    assert cells == [len(files) + len(BROKEN), len(BROKEN), lines, functions]

    for kind in ("modules", "classes", "functions"):
        counted = sum(one.kinds[kind] for one in counts)
        missing = sum(one.missing[kind] for one in counts)
        assert row(report, kind)[1:3] == [str(counted), str(missing)]

    size, order = report.split("The most complex function")
    longest = sorted((max(one.lengths) for one in counts if one.lengths), reverse=True)
    most = sorted((max(c.functions) for c in counts if c.functions), reverse=True)
    assert _numbers(size.split("The longest function")[1]) == longest[:10]
    assert _numbers(order.split("## Documentation")[0]) == most[:10]


def _numbers(section: str) -> list[int]:
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [int(line.rsplit("|", 2)[1]) for line in rows]


async def test_risky_calls_are_found_under_the_names_they_were_imported_by(
    audit, project, tmp_path
):
    await finished(audit, project, obedient(audit.label_of(project)), tmp_path)
    report = (tmp_path / "report.md").read_text()
    assert row(report, "`risky.py`")[1] == (
        "subprocess.run with shell=True (line 4) bare except (line 5) os.system (line 6) "
        "eval (line 7)"
    )
    others = {
        path: sum(
            ast.unparse(node.func) in ("eval", "exec", "pickle.load", "pickle.loads", "os.system")
            for node in ast.walk(ast.parse(content))
            if isinstance(node, ast.Call)
        )
        for path, content in readable(project).items()
        if path != "risky.py"
    }
    assert f"{4 + sum(others.values())} in {len(readable(project))} files." in report


async def test_files_that_cannot_be_read_are_reported_and_the_others_go_on(
    audit, project, tmp_path
):
    _, result, events = await finished(audit, project, obedient(audit.label_of(project)), tmp_path)
    assert result.success
    report = (tmp_path / "report.md").read_text()
    for path in BROKEN:
        cells = row(report, f"`{path}`")
        assert cells[1].startswith("SyntaxError")
        assert cells[2] == "complexity documentation risk"
    scans = [e for e in events if isinstance(e, ToolCompleteEvent) and e.parent_call_id is None]
    assert [json.loads(scan.result or "")["unreadable"] for scan in scans] == [len(BROKEN)] * 3


async def test_a_wrong_folder_is_refused_with_what_to_send_and_can_be_mended(
    audit, project, tmp_path
):
    label = audit.label_of(project)
    job, result, events = await finished(audit, project, obedient(label, "/etc", ""), tmp_path)
    assert job.problem(result, events) is None
    refusals = [e.error for e in events if isinstance(e, ToolCompleteEvent) and e.error]
    mentioned = [refusal for refusal in refusals if f'{{"folder": "{label}"}}' in refusal]
    assert len(mentioned) == 6
    assert "refused: there is no folder" in (tmp_path / "report.md").read_text()


async def test_a_model_that_never_names_the_folder_ends_the_job_as_failed(audit, project, tmp_path):
    job, result, events = await finished(
        audit, project, obedient("x", *["elsewhere"] * 20), tmp_path
    )
    assert not any(isinstance(e, ToolCompleteEvent) and e.error is None for e in events)
    assert "complexity, documentation, risk" in job.problem(result, events)
    assert "no successful scan" in (tmp_path / "report.md").read_text()


async def test_a_choice_that_names_nobody_is_reported_as_a_fallback(audit, project, tmp_path):
    good = obedient(audit.label_of(project)).fn
    model = FunctionModel(lambda messages, tools: good(messages, tools) if tools else text("eh?"))
    await finished(audit, project, model, tmp_path)
    assert "The choice is a fallback" in (tmp_path / "report.md").read_text()


async def test_the_timeline_is_a_picture_with_a_lane_per_process(audit, project, tmp_path):
    await finished(audit, project, obedient(audit.label_of(project)), tmp_path)
    svg = ET.parse(tmp_path / "timeline.svg").getroot()
    texts = [node.text or "" for node in svg.iter("{http://www.w3.org/2000/svg}text")]
    lanes = [one for one in texts if "pid" in one or "worker" in one][1:]
    assert [lane.split(" ·")[0] for lane in lanes][:1] == ["audit"]
    assert {"complexity", "documentation", "risk"} <= {lane.split(" ·")[0] for lane in lanes}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("plain", "plain"),
        ("two words (old)", "two-words-old"),
        ("größe", "groe"),
        ("项目", "folder"),
        ('it\'s "quoted"', "it-s-quoted"),
        ("a_b-c.d", "a_b-c.d"),
    ],
)
def test_the_name_that_models_are_given_is_one_they_can_repeat(audit, tmp_path, name, label):
    (tmp_path / name).mkdir()
    assert audit.label_of(tmp_path / name) == label


def test_a_target_without_python_files_is_refused(audit, tmp_path):
    with pytest.raises(ConfigError, match="no Python files"):
        audit.check(tmp_path)
    (tmp_path / "file.py").write_text("")
    audit.check(tmp_path)
    with pytest.raises(ConfigError, match="not a folder"):
        audit.check(tmp_path / "file.py")


def test_large_files_are_left_for_the_worker_to_read(audit, tmp_path, monkeypatch):
    (tmp_path / "large.py").write_text("x = 1\n" * 10)
    monkeypatch.setattr(audit, "MAX_SENT_BYTES", 10)
    item = audit._item(tmp_path, "large.py")
    assert item["source"] is None
    assert audit.measure_complexity(**item)["lines"] == 10
