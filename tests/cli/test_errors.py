"""Bad input: one clear line on standard error, a non-zero exit, nothing started, no traceback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "examples" / "audit_team.py"

JOB = """
from pathlib import Path
from tulip_actors import Agent
from tulip_actors.cli.job import Job
def job(target, model):
    return Job(Agent(model=model), "hello", lambda result, events, out: [])
"""


def says(done, code: int, *words: str) -> None:
    """One line that says it, and the code."""
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert [word for word in words if word not in done.stderr] == []
    assert sum(line.startswith("error: ") for line in lines) == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "one.py").write_text('"""One."""\n')
    return folder


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "hello_job.py"
    path.write_text(JOB)
    return path


def test_the_version_is_printed(cli):
    done = cli.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tulip-actors 0.")


def test_without_a_command_the_help_names_them(here):
    done = here.run()
    assert done.returncode == 0
    commands = ("run", "ps", "events", "runs", "cancel", "resume", "drain")
    assert all(name in done.stdout for name in commands)


def test_a_file_that_is_not_there_is_refused(here):
    says(here.run("run", "nothing.py"), 2, "nothing.py", "job()")


def test_a_file_without_a_job_is_refused(here, tmp_path):
    (tmp_path / "other.py").write_text("x = 1\n")
    says(here.run("run", tmp_path / "other.py"), 2, "does not define job")


def test_an_error_in_the_file_is_told_with_its_line(here, tmp_path):
    (tmp_path / "broken.py").write_text("import os\nos.nothing_such\n")
    says(here.run("run", tmp_path / "broken.py"), 2, "broken.py, line 2", "AttributeError")
    (tmp_path / "syntax.py").write_text("def job(:\n")
    says(here.run("run", tmp_path / "syntax.py"), 2, "syntax.py, line 1", "SyntaxError")


def test_a_job_that_returns_something_else_is_refused(here, tmp_path):
    (tmp_path / "wrong.py").write_text("def job(target, model):\n    return 42\n")
    done = here.run("run", tmp_path / "wrong.py", "--model", "openai:any")
    says(done, 2, "returned int", "Job")


def test_a_folder_that_is_not_there_is_refused_before_anything_is_started(here):
    done = here.run("run", AUDIT, "nowhere")
    says(done, 2, "there is no nowhere")
    assert list(here.folder.iterdir()) == []


def test_a_folder_without_python_files_is_refused_before_anything_is_started(here):
    (here.folder / "empty").mkdir()
    done = here.run("run", AUDIT, "empty")
    says(done, 2, "no Python files in empty")
    assert [path.name for path in here.folder.iterdir()] == ["empty"]


def test_an_unknown_model_prefix_is_refused(here, project):
    says(here.run("run", AUDIT, project, "--model", "acme:large"), 2, "acme", "openai")


def test_a_folder_for_the_output_that_is_a_file_is_refused(here, project):
    (here.folder / "taken").write_text("")
    says(here.run("run", AUDIT, project, "--out", "taken"), 2, "--out taken")


@pytest.mark.parametrize(
    "command",
    [["run", AUDIT], ["ps"], ["events"], ["runs"], ["cancel", "run_1"], ["drain", "agent_1"]],
    ids=lambda command: command[0],
)
def test_a_wrong_cluster_address_is_told_at_once(cli, command):
    done = cli.run(*command, "--address", "127.0.0.1:9")
    says(done, 2, "127.0.0.1:9", "RAY_ADDRESS")


def test_an_unknown_event_type_is_refused_with_the_known_ones(here):
    says(here.run("events", "--type", "nonsense"), 2, "nonsense", "tool_start")


def test_an_unreachable_model_fails_the_job_and_leaves_the_report(here, project):
    url = "http://127.0.0.1:9/v1"
    done = here.run("run", AUDIT, project, OPENAI_BASE_URL=url, TULIP_RUNTIME="inline")
    says(done, 1, "cannot be reached", url, "complexity, documentation, risk")
    report = (here.folder / "report.md").read_text()
    assert "The choice is a fallback" in report
    assert "cannot be reached" in report


class Refuses(http.server.BaseHTTPRequestHandler):
    """Says 401 to everybody."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"error": {"message": "Incorrect API key provided"}}'
        self.send_response(401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_a_refused_key_fails_the_job(here, job_file, refusing_url):
    done = here.run(
        "run", job_file, "--model", "openai:any",
        OPENAI_BASE_URL=refusing_url, OPENAI_API_KEY="wrong", TULIP_RUNTIME="inline",
    )  # fmt: skip
    says(done, 1, "401", "OPENAI_API_KEY")
    assert "wrong" not in done.stderr


def test_json_output_holds_events_and_nothing_else(cli, tmp_path):
    (tmp_path / "chatty.py").write_text(
        "import os\nprint('at import')\n"
        "from tulip_actors import Agent\n"
        "from tulip_actors.cli.job import Job\n"
        "from tulip_actors.testing import ScriptedModel, tool_call, text\n"
        "def loud() -> str:\n    print('in a tool', flush=True)\n    os.write(1, b'raw')\n"
        "    return 'ok'\n"
        "def job(target, model):\n"
        "    agent = Agent(ScriptedModel([tool_call('loud'), text('bye')]), [loud])\n"
        "    return Job(agent, 'go', lambda result, events, out: [out / 'made'])\n"
    )
    done = cli.run(
        "run", tmp_path / "chatty.py", "--json", "--model", "openai:any", TULIP_RUNTIME="inline"
    )
    assert done.returncode == 0, done.stderr
    types = [line.split('"event_type":"')[1].split('"')[0] for line in done.stdout.splitlines()]
    assert types == ["think", "tool_start", "tool_complete", "think", "terminate"]
    assert all(word in done.stderr for word in ("at import", "in a tool", "raw", "wrote made"))


def test_an_exception_of_the_jobs_own_is_a_failure_told_in_a_line(here, tmp_path):
    (tmp_path / "raises.py").write_text(
        "from tulip_actors import Team\n"
        "from tulip_actors.cli.job import Job\n"
        "class Clumsy(Team[str]):\n"
        "    async def conduct(self, input, ctx):\n        return {}['missing']\n"
        "def job(target, model):\n"
        "    return Job(Clumsy('clumsy'), 'go', lambda result, events, out: [out / 'partial'])\n"
    )
    done = here.run("run", tmp_path / "raises.py", "--model", "openai:any", TULIP_RUNTIME="inline")
    says(done, 1, "KeyError", "missing")
    assert "wrote partial (partial)" in done.stdout
