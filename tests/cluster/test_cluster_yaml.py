"""cluster.yaml is accepted by the Ray that is installed, and mistakes in it are not."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler import sdk
from ray.scripts import scripts as ray_cli

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    return loaded


def ray_start_arguments(commands: list[str]) -> list[str]:
    """The words after `ray start` in the one command that has it."""
    [line] = [command for command in commands if "ray start" in command]
    words = shlex.split(line.split("ray start", 1)[1])
    return [word for word in words if word.startswith("--")]


def test_the_file_fits_the_schema_that_ships_in_ray(config: dict[str, Any]) -> None:
    jsonschema.validate(config, SCHEMA)


def test_ray_up_would_accept_the_file(config: dict[str, Any]) -> None:
    # The step of `ray up` before it touches any machine: defaults, then checks.
    complete = sdk.bootstrap_config(config, no_config_cache=True)
    [node_type] = complete["available_node_types"].values()
    assert node_type["max_workers"] == len(config["provider"]["worker_ips"])


@pytest.mark.parametrize("typo", ["head_node_typ", "max_workerz", "setup_command"])
def test_a_misspelled_key_is_refused_by_name(config: dict[str, Any], typo: str) -> None:
    config[typo] = 3
    with pytest.raises(jsonschema.ValidationError, match=typo):
        jsonschema.validate(config, SCHEMA)
    with pytest.raises(jsonschema.ValidationError, match=typo):
        sdk.bootstrap_config(config, no_config_cache=True)


def test_a_misspelled_key_inside_auth_is_refused_by_name(config: dict[str, Any]) -> None:
    config["auth"]["ssh_usr"] = config["auth"].pop("ssh_user")
    with pytest.raises(jsonschema.ValidationError, match="ssh_usr"):
        jsonschema.validate(config, SCHEMA)


@pytest.mark.parametrize("node", ["head", "worker"])
def test_every_start_option_is_one_that_ray_start_has(config: dict[str, Any], node: str) -> None:
    known = {name for option in ray_cli.start.params for name in option.opts}
    used = ray_start_arguments(config[f"{node}_start_ray_commands"])
    assert {argument.partition("=")[0] for argument in used} <= known


def test_the_head_notices_a_lost_node_within_seconds(config: dict[str, Any]) -> None:
    arguments = ray_start_arguments(config["head_start_ray_commands"])
    [value] = [a.partition("=")[2] for a in arguments if a.startswith("--system-config=")]
    settings = json.loads(value)
    silence_ms = settings["health_check_period_ms"] + settings["health_check_timeout_ms"]
    assert silence_ms * settings["health_check_failure_threshold"] <= 3_000


@pytest.mark.parametrize("node", ["head", "worker"])
def test_every_node_starts_with_token_authentication(config: dict[str, Any], node: str) -> None:
    [start] = [c for c in config[f"{node}_start_ray_commands"] if "ray start" in c]
    assert "RAY_AUTH_MODE=token" in start.partition("ray start")[0].split()
    assert "~/.ray/auth_token" in config["file_mounts"]


def test_the_autoscaler_that_knows_local_machines_is_chosen(config: dict[str, Any]) -> None:
    # The other one, which `ray up` asks for, leaves the workers out without a word.
    [start] = [c for c in config["head_start_ray_commands"] if "ray start" in c]
    assert "RAY_enable_autoscaler_v2=0" in start.partition("ray start")[0].split()


def test_the_dashboard_is_bound_to_loopback(config: dict[str, Any]) -> None:
    arguments = ray_start_arguments(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in arguments


def test_the_setup_installs_our_wheel_with_the_extra_that_jobs_need(
    config: dict[str, Any],
) -> None:
    commands = "\n".join(config["setup_commands"])
    assert re.search(
        r"--constraint ~/tulip_actors/constraints.txt \"\$\{wheel\}\[cluster\]\"", commands
    )
