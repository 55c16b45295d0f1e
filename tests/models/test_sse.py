"""Server-sent events are read right wherever the bytes are cut (F36)."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tulip_actors.models.sse import SseEvent, SseParser

STREAM = (
    "\ufeff: a comment\r\n"
    'data: {"text": "Grüße 😀"}\r\n\r\n'
    "data:no space\n\n"
    "event: error\rdata: first\rdata:  second\r\r"
    ":\n\n"
    "data:\n\n"
    "id: 7\nretry: 10\ndata: [DONE]\n\n"
).encode()
EVENTS = [
    SseEvent('{"text": "Grüße 😀"}'),
    SseEvent("no space"),
    SseEvent("first\n second", "error"),
    SseEvent("[DONE]"),
]


def read(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.end()


def test_f36_a_cut_at_any_byte_changes_nothing():
    for cut in range(len(STREAM) + 1):
        assert read(STREAM[:cut], STREAM[cut:]) == EVENTS, f"cut at {cut}"


def test_f36_one_byte_at_a_time_changes_nothing():
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(STREAM))))
def test_f36_many_cuts_change_nothing(cuts):
    bounds = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(bounds))) == EVENTS


def test_an_event_is_there_as_soon_as_its_blank_line_is():
    assert SseParser().feed(b"data: x\r\n\r") == [SseEvent("x")]


def test_f36_the_last_event_counts_without_a_blank_line():
    assert read(b"data: x\n\ndata: y") == [SseEvent("x"), SseEvent("y")]


def test_a_bare_error_line_is_an_event():
    assert read(b'error: {"code": 500}\n\n') == [SseEvent('{"code": 500}', "error")]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream():
    assert read(b"data: \xff\n\ndata: y\n\n") == [SseEvent("\ufffd"), SseEvent("y")]
