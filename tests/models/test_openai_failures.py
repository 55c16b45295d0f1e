"""What goes wrong over HTTP is told as what it is, without a key (C39)."""

from __future__ import annotations

import asyncio
import pickle
import socket
import traceback

import pytest

from tulip_actors.core.messages import Message
from tulip_actors.errors import (
    ConfigError,
    ModelAuthError,
    ModelBadResponse,
    ModelError,
    ModelInvalidRequest,
    ModelThrottled,
    ModelUnavailable,
)
from tulip_actors.models import ModelResponse, OpenAIChatModel
from tulip_actors.models.accumulate import accumulate

QUESTION = [Message.user("q")]
KEY = "sk-very-secret-0123"


@pytest.fixture
def model(wire, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    return OpenAIChatModel("m", wire.base_url, api_key_env="THE_KEY", timeout_s=20)


async def ask(model: OpenAIChatModel, *, streamed: bool) -> ModelResponse:
    if streamed:
        return await accumulate(model.stream(QUESTION))
    return await model.complete(QUESTION)


async def failure_of(model: OpenAIChatModel, *, streamed: bool = False) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model, streamed=streamed)
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown
    assert repr(model.model) in str(caught.value)
    assert model.base_url in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), vars(copy)) == (type(caught.value), vars(caught.value))
    return caught.value


@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ModelAuthError),
        (403, ModelAuthError),
        (307, ModelInvalidRequest),
        (400, ModelInvalidRequest),
        (404, ModelInvalidRequest),
        (413, ModelInvalidRequest),
        (422, ModelInvalidRequest),
        (429, ModelThrottled),
        (408, ModelUnavailable),
        (409, ModelUnavailable),
        (500, ModelUnavailable),
        (503, ModelUnavailable),
    ],
)
async def test_a_status_is_told_as_its_error(wire, model, status, expected, streamed):
    # Servers repeat the key in what they say.
    wire.json({"error": {"message": f"no: {KEY}"}}, status)
    error = await failure_of(model, streamed=streamed)
    assert type(error) is expected
    assert error.status == status
    assert "no: ***" in str(error)


async def test_a_404_names_both_things_it_may_be(wire, model):
    wire.raw([b"<html>nothing here</html>"], 404, content_type="text/html")
    error = await failure_of(model)
    assert "model's name" in str(error)
    assert "base_url" in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
        (
            {
                "retry_after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
async def test_f38_retry_after_is_read_in_seconds_and_as_a_date(wire, model, headers, seconds):
    wire.json({"error": "slow"}, 429, **headers)
    error = await failure_of(model)
    assert isinstance(error, ModelThrottled)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize(
    "body", [b"<html>login</html>", b"", b"{oops"], ids=["html", "empty", "cut"]
)
async def test_a_200_that_is_not_the_api_is_a_bad_response(wire, model, body, streamed):
    kind = "text/html" if body.startswith(b"<") else "application/json"
    wire.raw([body] if body else [], content_type=kind)
    assert type(await failure_of(model, streamed=streamed)) is ModelBadResponse


async def test_junk_inside_a_stream_is_a_bad_response(wire, model):
    wire.sse("data: {oops\n\n")
    assert type(await failure_of(model, streamed=True)) is ModelBadResponse


async def test_a_port_where_nothing_listens_is_unavailable():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        error = await failure_of(OpenAIChatModel("m", url, api_key_env=None))
    assert type(error) is ModelUnavailable
    assert "running" in str(error)


@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
async def test_a_silent_server_is_unavailable_after_timeout_s(wire, streamed):
    wire.sse(then="wait")
    error = await failure_of(
        OpenAIChatModel("m", wire.base_url, api_key_env=None, timeout_s=0.1), streamed=streamed
    )
    assert type(error) is ModelUnavailable
    assert "timeout_s" in str(error)


async def test_a_body_that_is_cut_is_unavailable(wire, model):
    wire.raw([b'{"choices"'], content_type="application/json", then="cut")
    assert type(await failure_of(model)) is ModelUnavailable


async def test_a_missing_key_is_an_auth_error_that_names_the_variable(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    model = OpenAIChatModel("m", "https://models.invalid/v1", api_key_env="SOME_KEY")
    error = await failure_of(model)
    assert type(error) is ModelAuthError
    assert "SOME_KEY" in str(error)


async def test_a_key_that_cannot_be_a_header_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv("SOME_KEY", f"{KEY}\nX: y")
    error = await failure_of(OpenAIChatModel("m", "https://models.invalid/v1", "SOME_KEY"))
    assert type(error) is ModelAuthError


async def test_a_local_server_needs_no_key(wire, monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    wire.json({"choices": [{"message": {"content": "hi"}}]})
    await OpenAIChatModel("m", wire.base_url, api_key_env="SOME_KEY").complete(QUESTION)
    assert "authorization" not in wire.requests[0].headers


async def test_the_key_is_read_when_the_call_is_made(wire, model, monkeypatch):
    monkeypatch.setenv("THE_KEY", "another")
    wire.json({"choices": [{"message": {"content": "hi"}}]})
    await model.complete(QUESTION)
    assert wire.requests[0].headers["authorization"] == "Bearer another"


async def test_a_proxy_is_not_asked_for_loopback(wire, model, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    wire.json({"choices": [{"message": {"content": "hi"}}]})
    assert (await model.complete(QUESTION)).message.content == "hi"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://", "http://x:port/v1"])
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(ConfigError, match="base_url"):
        OpenAIChatModel("m", url)


@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
async def test_f13_cancelling_hangs_up(wire, model, streamed):
    wire.sse('data: {"choices": []}\n\n', then="wait")
    task = asyncio.create_task(ask(model, streamed=streamed))
    assert await asyncio.to_thread(wire.waiting.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(wire.hung_up.wait, 10)


async def test_closing_a_stream_early_hangs_up(wire, model):
    wire.sse({"choices": [{"delta": {"content": "x"}}]}, then="wait")
    stream = model.stream(QUESTION)
    assert (await anext(stream)).content == "x"
    await stream.aclose()
    assert await asyncio.to_thread(wire.hung_up.wait, 10)
