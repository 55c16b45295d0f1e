"""A job's file need not be importable where its agents and tools run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACK = """
import sys
from pathlib import Path
from tulip_actors.cli.load import load
from tulip_actors.cli.run import _send_by_value
from tulip_actors.runtime.pickling import pack
from tulip_actors.testing import ScriptedModel
file = load(Path(sys.argv[1]))
_send_by_value(file)
job = file.job(Path(sys.argv[1]).parent, ScriptedModel(["x"]))
measure = file.module.measure_risk
sys.stdout.buffer.write(pack((job.team.runnable, measure), "the job"))
"""

UNPACK = """
import sys
from tulip_actors.runtime.pickling import unpack
team, measure = unpack(sys.stdin.buffer.read())
assert not {"audit_team", "audit_measures", "audit_report"} & set(sys.modules)
assert [member.name for member in team.members()] == ["complexity", "documentation", "risk"]
print(measure.fn("", "a.py", "eval('1')"))
"""


def test_the_team_and_its_tools_travel_without_their_files(tmp_path):
    python = [sys.executable, "-c"]
    audit = ROOT / "examples" / "audit_team.py"
    packed = subprocess.run([*python, PACK, audit], capture_output=True, check=False, cwd=tmp_path)
    assert packed.returncode == 0, packed.stderr.decode()
    there = subprocess.run(
        [*python, UNPACK], input=packed.stdout, capture_output=True, check=False, cwd=tmp_path
    )
    assert there.returncode == 0, there.stderr.decode()
    assert there.stdout.decode().strip() == (
        "{'path': 'a.py', 'risks': [{'line': 1, 'what': 'eval'}]}"
    )
