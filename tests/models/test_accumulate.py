"""Pieces of an answer become the answer, whichever way a server cuts them (C33, F31-F35)."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulip_actors.core.events import ModelChunkEvent, ToolCallDelta
from tulip_actors.core.frozen import clean_text
from tulip_actors.core.messages import ToolCall
from tulip_actors.models.accumulate import (
    Accumulator,
    accumulate,
    normalise_usage,
    parse_arguments,
)


def calls_of(*deltas: ToolCallDelta) -> tuple[ToolCall, ...]:
    accumulator = Accumulator()
    for delta in deltas:
        accumulator.add(ModelChunkEvent(tool_calls=(delta,)))
    return accumulator.response().message.tool_calls


def delta(arguments=None, *, id=None, name=None, index=None) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=id, name=name, arguments=arguments)


async def test_text_and_reasoning_are_joined_apart_from_each_other():
    response = await accumulate(
        [
            ModelChunkEvent(reasoning="let me "),
            ModelChunkEvent(reasoning="see", content="Hel"),
            ModelChunkEvent(content="lo"),
            ModelChunkEvent(done=True, stop_reason="stop"),
        ]
    )
    assert response.message.content == "Hello"
    assert response.message.reasoning == "let me see"
    assert response.stop_reason == "stop"


async def test_an_async_iterator_is_taken_like_a_sequence():
    async def chunks() -> AsyncIterator[ModelChunkEvent]:
        yield ModelChunkEvent(content="a")
        yield ModelChunkEvent(content="b", done=True)

    assert (await accumulate(chunks())).message.content == "ab"


async def test_no_reported_usage_is_none_and_not_zero():
    assert (await accumulate([ModelChunkEvent(content="x", done=True)])).usage is None


async def test_usage_that_comes_in_two_parts_is_put_together():
    response = await accumulate(
        [ModelChunkEvent(usage={"input_tokens": 7}), ModelChunkEvent(usage={"output_tokens": 2})]
    )
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


async def test_usage_that_comes_as_a_running_total_is_not_added_up():
    running = [ModelChunkEvent(usage={"prompt_tokens": 5, "completion_tokens": n}) for n in (1, 2)]
    response = await accumulate(running)
    assert response.usage == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.mark.parametrize("raw", [None, "12", {}, {"cost": 1.5}, {"prompt_tokens": None}])
def test_what_holds_no_counts_is_no_usage(raw):
    assert normalise_usage(raw) is None


def test_calls_with_an_index_may_interleave():
    first, second = calls_of(
        delta('{"a":', id="x", name="f", index=0),
        delta('{"b":', id="y", name="g", index=1),
        delta("1}", index=0),
        delta("2}", index=1),
    )
    assert (first.name, first.arguments) == ("f", {"a": 1})
    assert (second.name, second.arguments) == ("g", {"b": 2})


def test_f34_without_index_an_id_opens_a_call_and_arguments_alone_continue_the_last():
    first, second = calls_of(
        delta('{"a"', id="x", name="f"),
        delta(":1}"),
        delta("", id="y", name="f"),
        delta('{"a":'),
        delta("2}"),
    )
    assert (first.id, first.arguments) == ("x", {"a": 1})
    assert (second.id, second.arguments) == ("y", {"a": 2})


def test_f35_two_calls_that_share_an_index_are_split_on_a_new_id():
    first, second = calls_of(
        delta('{"a":1}', id="x", name="f", index=0), delta('{"a":2}', id="y", name="f", index=0)
    )
    assert (first.arguments, second.arguments) == ({"a": 1}, {"a": 2})


def test_f35_two_calls_that_share_an_index_are_split_on_a_new_name():
    first, second = calls_of(delta("{}", name="f", index=0), delta("{}", name="g", index=0))
    assert (first.name, second.name) == ("f", "g")


def test_f35_two_calls_without_ids_to_one_tool_are_split_when_the_first_is_finished():
    first, second = calls_of(
        delta('{"a":', name="f", index=0),
        delta("1}", name="f", index=0),
        delta('{"a":2}', name="f", index=0),
    )
    assert (first.arguments, second.arguments) == ({"a": 1}, {"a": 2})


def test_f35_pieces_that_share_an_index_but_carry_their_ids_go_to_their_calls():
    first, second = calls_of(
        delta('{"a":', id="x", name="f", index=0),
        delta('{"b":', id="y", name="g", index=0),
        delta("1}", id="x", index=0),
        delta("2}", id="y", index=0),
    )
    assert (first.arguments, second.arguments) == ({"a": 1}, {"b": 2})


def test_id_and_name_repeated_in_every_piece_are_one_call():
    (call,) = calls_of(
        *(delta(piece, id="x", name="f", index=0) for piece in ('{"a":', '{"b":', "1}", "}"))
    )
    assert call.arguments == {"a": {"b": 1}}


def test_an_id_that_is_given_to_two_calls_at_two_indices_is_two_calls():
    first, second = calls_of(
        delta("{}", id="x", name="f", index=0), delta("{}", id="x", name="f", index=1)
    )
    assert first.id == second.id == "x"


def test_calls_without_ids_get_ids_that_differ():
    first, second = calls_of(delta("{}", name="f", index=0), delta("{}", name="f", index=1))
    assert first.id
    assert first.id != second.id


def test_an_empty_piece_makes_no_call():
    assert calls_of(delta("", index=0)) == ()


def test_f31_malformed_arguments_are_kept_apart_from_the_arguments():
    (call,) = calls_of(delta('{"a": ', id="x", name="f"))
    assert call.arguments == {}
    assert call.malformed == '{"a": '


@pytest.mark.parametrize("raw", [None, "", "  ", "null", "[]", "{}", '""', '"{}"', '"null"', {}])
def test_f32_no_arguments_in_any_spelling_are_an_empty_object(raw):
    assert parse_arguments(raw) == ({}, None)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_f32_json_inside_json_text_is_opened(times):
    text: object = {"city": "Köln", "days": [1, None]}
    for _ in range(times):
        text = json.dumps(text)
    assert parse_arguments(text) == ({"city": "Köln", "days": [1, None]}, None)


@pytest.mark.parametrize(
    "raw",
    [
        "{",
        "[1]",
        "7",
        '"text"',
        "{}{}",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 18446744073709551616}',
    ],
    ids=lambda raw: raw[:12],
)
def test_f31_what_is_no_storable_object_is_malformed_and_keeps_its_text(raw):
    assert parse_arguments(raw) == ({}, raw)


def test_halves_of_characters_are_joined_or_replaced():
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("a\ud83d") == "a\ufffd"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_calls_cut_anywhere_are_the_same_calls(data):
    integers_64 = st.integers(-(2**63), 2**63)
    objects = st.dictionaries(st.text(max_size=4), integers_64 | st.text(max_size=6), max_size=3)
    wanted = data.draw(st.lists(objects, min_size=1, max_size=4))
    indexed = data.draw(st.booleans())
    deltas = []
    for slot, arguments in enumerate(wanted):
        text = json.dumps(arguments)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        bounds = [0, *cuts, len(text)]
        index = slot if indexed else None
        deltas.append(delta(id=f"id{slot}", name="f", index=index))
        deltas += [delta(text[a:b], index=index) for a, b in itertools.pairwise(bounds)]
    assert [call.arguments for call in calls_of(*deltas)] == wanted
