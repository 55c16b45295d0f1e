"""What can go wrong with a model call over HTTP, and which error says so.

What may live here: `Endpoint` (who was asked) and `to_model_error`, the one place where HTTP
statuses and the HTTP library's exceptions become the package's errors. Every message names the
server and the model and says what to do; none holds a key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

import httpx

from tulip_actors.errors import (
    ModelAuthError,
    ModelBadResponse,
    ModelError,
    ModelInvalidRequest,
    ModelThrottled,
    ModelUnavailable,
)

_EXCERPT_CHARS = 500

_STATUS_OF_TYPE = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens": 429,
    "requests": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "api_error": 500,
    "overloaded_error": 503,
    "unavailable_error": 503,
}
"""Statuses that error objects inside a stream name by type or code instead of by number."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is asked, for one call. It lives as long as the call and is never pickled."""

    base_url: str
    path: str
    model: str
    timeout_s: float
    key: str | None = field(default=None, repr=False)
    key_env: str | None = None

    @property
    def url(self) -> str:
        """Where the request goes: the path is added to the base, before its query."""
        parts = urlsplit(self.base_url)
        base = parts.path.rstrip("/")
        path = base if base.endswith(self.path) else base + self.path
        return urlunsplit(parts._replace(path=path, fragment=""))

    def __str__(self) -> str:
        return f"model {self.model!r} at {shown_url(self.base_url)}"

    def scrub(self, text: str) -> str:
        """The text without the key: servers repeat it in their errors."""
        return text.replace(self.key, "***") if self.key else text


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error. `status` is the HTTP status, or the one its object names."""

    status: int
    text: str
    retry_after_s: float | None = None


def shown_url(url: str) -> str:
    """The URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def to_model_error(cause: httpx.HTTPError | Refusal, at: Endpoint) -> ModelError:
    """The package's error for a refused, broken or unanswered call."""
    if isinstance(cause, Refusal):
        return _refused(cause, at)
    detail = f"{type(cause).__name__}: {at.scrub(str(cause))}".rstrip(": ")
    if isinstance(cause, httpx.ConnectTimeout | httpx.ConnectError):
        return ModelUnavailable(
            f"{at} cannot be reached ({detail}): check that the server is running and that "
            "base_url (or OPENAI_BASE_URL) names its host and port"
        )
    if isinstance(cause, httpx.TimeoutException):
        return ModelUnavailable(
            f"{at} was silent for {at.timeout_s:g} s ({detail}): try again, or allow more with "
            "timeout_s="
        )
    if isinstance(cause, httpx.DecodingError):
        return ModelBadResponse(f"{at} sent a body that cannot be decompressed ({detail})")
    if isinstance(cause, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        # The library's text may quote headers, so it stays out.
        return ModelInvalidRequest(
            f"no request could be made for {at} ({type(cause).__name__}): check base_url"
        )
    return ModelUnavailable(f"the connection to {at} broke ({detail}): try again")


def _refused(cause: Refusal, at: Endpoint) -> ModelError:
    status, said = cause.status, at.scrub(cause.text)
    if status in (401, 403):
        key = f"the key in {at.key_env}" if at.key_env else "what the server wants as a key"
        return ModelAuthError(
            f"{at} refuses access ({status}): check {key} and that it may use this model. {said}",
            status=status,
        )
    if status == 429:
        wait = "" if cause.retry_after_s is None else f" for {cause.retry_after_s:g} s"
        return ModelThrottled(
            f"{at} asks to slow down (429): wait{wait}, send less at once, or check the quota. "
            f"{said}",
            status=status,
            retry_after_s=cause.retry_after_s,
        )
    if status >= 500 or status in (408, 409):
        return ModelUnavailable(f"{at} failed ({status}): try again later. {said}", status=status)
    return ModelInvalidRequest(
        f"{at} refuses the request ({status}): {_advice(status)}. {said}", status=status
    )


def _advice(status: int) -> str:
    if status == 404:
        return "check the model's name, and that base_url is complete (it mostly ends in /v1)"
    if status == 413:
        return "send fewer or shorter messages"
    if 300 <= status < 400:
        return "it redirects elsewhere, so put the final address into base_url"
    return "change it, because sending it again will not help"


def refusal_of_response(status: int, headers: httpx.Headers, body: bytes) -> Refusal:
    """What an answer with an error status says."""
    text = body.decode("utf-8", "replace").strip()
    try:
        said = _error_text(json.loads(text))
    except (ValueError, RecursionError):
        said = describe_body(text)
    return Refusal(status, said, retry_after_s(headers))


def refusal_of_object(error: object) -> Refusal:
    """What an error object inside a 200 answer says; an unknown kind counts as a server error."""
    status = 500
    if isinstance(error, Mapping):
        for name in ("status", "code", "type"):
            value = error.get(name)
            if isinstance(value, str) and value.isdecimal():
                value = int(value)
            if isinstance(value, str):
                value = _STATUS_OF_TYPE.get(value)
            if isinstance(value, int) and 400 <= value < 600:
                status = value
                break
    return Refusal(status, _error_text({"error": error}))


def refusal_of_text(text: str) -> Refusal:
    """What the data of an error event says: an error object, one wrapped in another, or words."""
    try:
        payload: object = json.loads(text)
    except (ValueError, RecursionError):
        payload = text
    if isinstance(payload, Mapping):
        payload = payload.get("error") or payload
    return refusal_of_object(payload)


def describe_body(text: str) -> str:
    """A body that is not JSON, in a few words."""
    if not text:
        return "The body is empty."
    if text.lstrip()[:1] == "<":
        return "The body is an HTML page, so this is probably not the API's address."
    return f"The server said: {text[:_EXCERPT_CHARS]}"


def _error_text(payload: object) -> str:
    error = payload.get("error", payload) if isinstance(payload, Mapping) else payload
    message: object = error
    if isinstance(error, Mapping):
        message = error.get("message") or error.get("detail") or json.dumps(error, default=str)
    return f"The server said: {str(message)[:_EXCERPT_CHARS]}"


def retry_after_s(headers: httpx.Headers) -> float | None:
    """The provider's hint how long to wait, which it gives in seconds or as a date.

    A date is read against the server's own clock where the answer tells it.
    """
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        then = _http_date(value)
        if then is None:
            return None
        now = _http_date(headers.get("date", "")) or datetime.now(UTC)
        seconds = (then - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _http_date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
