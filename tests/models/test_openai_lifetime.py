"""A model is plain data; clients belong to event loops (C16, F40, F41)."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import warnings

import pytest

from tulip_actors.core.messages import Message
from tulip_actors.core.ports import ChatModel, StreamingChatModel
from tulip_actors.models import OpenAIChatModel, transport

QUESTION = [Message.user("q")]
OK = {"choices": [{"message": {"content": "hi"}}]}


async def ask(model: OpenAIChatModel) -> str:
    return (await model.complete(QUESTION)).message.content


def test_it_is_a_chat_model_that_streams():
    assert isinstance(OpenAIChatModel("m"), ChatModel)
    assert isinstance(OpenAIChatModel("m"), StreamingChatModel)


def test_it_survives_pickle_and_keeps_everything():
    model = OpenAIChatModel("m", "http://127.0.0.1:1/v1", "K", 5, temperature=0)
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(pickle.loads(pickle.dumps(model))) == hash(model)


async def test_it_pickles_after_it_was_used(wire):
    model = OpenAIChatModel("m", wire.base_url, api_key_env=None)
    wire.json(OK)
    await ask(model)
    assert pickle.loads(pickle.dumps(model)) == model


def test_neither_pickle_nor_repr_holds_a_secret(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    model = OpenAIChatModel("m", "https://me:pass@host.invalid/v1?sig=abc", user="somebody")
    assert b"sk-secret" not in pickle.dumps(model)
    for secret in ("sk-secret", "pass", "abc", "somebody"):
        assert secret not in repr(model)


def test_the_base_url_comes_from_the_environment_it_was_made_in(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:7/v1")
    model = OpenAIChatModel("m")
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert model.base_url == "http://127.0.0.1:7/v1"
    assert OpenAIChatModel("m").base_url == "https://api.openai.com/v1"


def test_it_cannot_be_changed():
    model = OpenAIChatModel("m", temperature=0)
    with pytest.raises(AttributeError):
        model.model = "n"  # type: ignore[misc]
    with pytest.raises(TypeError):
        model.settings["temperature"] = 1


def test_a_query_in_the_base_url_stays_behind_the_path(wire):
    model = OpenAIChatModel("m", f"{wire.base_url}/?version=3", api_key_env=None)
    wire.json(OK)
    asyncio.run(ask(model))
    assert wire.requests[0].path == "/v1/chat/completions?version=3"


def test_f41_one_event_loop_after_the_other_works_any_number_of_times(wire):
    model = OpenAIChatModel("m", wire.base_url, api_key_env=None)
    for _ in range(5):
        wire.json(OK)
        assert asyncio.run(ask(model)) == "hi"
    assert wire.connections == 5


def test_f41_two_event_loops_at_once_have_a_client_each(wire):
    model = OpenAIChatModel("m", wire.base_url, api_key_env=None)
    answers: list[str] = []
    for _ in range(8):
        wire.json(OK)
    threads = [
        threading.Thread(target=lambda: answers.append(asyncio.run(ask(model)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == ["hi"] * 8


def test_a_loop_that_ends_takes_its_connections_with_it(wire):
    model = OpenAIChatModel("m", wire.base_url, api_key_env=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(3):
            wire.json(OK)
            asyncio.run(ask(model))
        gc.collect()
    assert [str(w.message) for w in caught] == []


def test_closed_loops_are_forgotten(wire):
    model = OpenAIChatModel("m", wire.base_url, api_key_env=None)
    for _ in range(3):
        wire.json(OK)
        asyncio.run(ask(model))
    assert sum(loop.is_closed() for loop in transport._pool) <= 1


async def test_one_loop_has_one_client():
    first, second = await asyncio.gather(transport.client(), transport.client())
    assert first is second
