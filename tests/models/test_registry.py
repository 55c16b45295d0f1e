"""Model strings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tulip_actors.errors import ConfigError, ModelNotFound
from tulip_actors.models import (
    ModelResponse,
    OpenAIChatModel,
    get_model,
    register_provider,
    registry,
)


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


def test_an_openai_string_gives_that_model():
    model = get_model("openai:gpt-4o-mini")
    assert isinstance(model, OpenAIChatModel)
    assert model.model == "gpt-4o-mini"


def test_the_name_may_hold_colons():
    model = get_model("openai-compatible:llama3.2:1b", base_url="http://127.0.0.1:1/v1")
    assert isinstance(model, OpenAIChatModel)
    assert model.model == "llama3.2:1b"


@pytest.mark.parametrize("spec", ["gpt-4o-mini", "nobody:x", "openai:", ":x", ""])
def test_a_string_that_names_no_model_is_told_what_there_is(spec):
    with pytest.raises(ModelNotFound) as caught:
        get_model(spec)
    for hint in ("openai-compatible", "openai:gpt-4o-mini", repr(spec)):
        assert hint in str(caught.value)


def test_a_compatible_server_must_be_named(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        get_model("openai-compatible:m")


def test_a_registered_provider_gets_name_and_options():
    class Mine:
        def __init__(self, name: str, **options: object) -> None:
            self.made = (name, options)

        async def complete(self, messages, tools=None, **settings) -> ModelResponse:
            raise NotImplementedError

    register_provider("mine", Mine)
    model = get_model("mine:a:b", speed=3)
    assert isinstance(model, Mine)
    assert model.made == ("a:b", {"speed": 3})


@pytest.mark.parametrize("prefix", ["", "a:b", " a"])
def test_a_prefix_that_no_string_could_have_is_refused(prefix):
    with pytest.raises(ConfigError):
        register_provider(prefix, OpenAIChatModel)


def test_importing_the_package_loads_neither_http_nor_ray():
    code = (
        "import sys, tulip_actors.models as m; m.get_model; "
        "assert not {'httpx', 'ray'} & set(sys.modules); m.OpenAIChatModel"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_is_there():
    import tulip_actors.models as package

    assert all(getattr(package, name) is not None for name in package.__all__)
