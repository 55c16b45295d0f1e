"""A driver that attaches compares its versions with the cluster's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from tulip_actors.runtime import services
here = services.Versions.here()
services.Versions.here = classmethod(lambda cls: services.Versions({version!r}, {python!r}))
from tulip_actors import Agent, TulipError
from tulip_actors.testing import ScriptedModel, text
try:
    print(Agent(ScriptedModel([text("ran")])).run_sync("x").text)
except TulipError as error:
    print(error.code, error)
"""


def told(address: str, version: str, python: str) -> str:
    done = subprocess.run(  # the exit code is part of what is tested
        [sys.executable, "-c", PROGRAM.format(version=version, python=python)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, "RAY_ADDRESS": address, "TULIP_QUIET": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("version", "python"), [("99.0", "3.11"), ("0.1.0", "2.7")])
def test_another_version_on_the_cluster_is_an_error_that_names_both(
    ray_cluster: str, version: str, python: str
) -> None:
    output = told(ray_cluster, version, python)
    assert output.startswith("version_mismatch")
    assert f"tulip_actors {version} on Python {python}" in output
    assert "install the same on both" in output
