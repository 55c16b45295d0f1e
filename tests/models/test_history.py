"""What is sent is a history every provider accepts (C32, F18-F20, F37)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tulip_actors.core.messages import Message, Role, ToolCall, ToolResult
from tulip_actors.models.history import UNAVAILABLE, valid_history


def turn(*ids: str) -> Message:
    return Message.assistant("", tuple(ToolCall(i, "f") for i in ids))


def result(call_id: str, content: str = "ok") -> Message:
    return Message.tool(ToolResult(call_id, "f", content))


def test_a_valid_history_is_sent_as_it_is():
    history = [Message.user("q"), turn("a", "b"), result("a"), result("b"), Message.assistant("x")]
    assert valid_history(history) == history


def test_f18_f20_a_call_without_a_result_is_closed_in_neutral_words():
    closed = valid_history([turn("a", "b"), result("b")])[1]
    assert (closed.tool_call_id, closed.content, closed.is_error) == ("a", UNAVAILABLE, True)
    assert "effect may have happened" in UNAVAILABLE
    assert "user" not in UNAVAILABLE


def test_results_stand_in_call_order():
    sent = valid_history([turn("a", "b"), result("b"), result("a")])
    assert [message.tool_call_id for message in sent[1:]] == ["a", "b"]


def test_f37_results_come_before_what_was_said_meanwhile():
    sent = valid_history([turn("a", "b"), result("a"), Message.user("hurry"), result("b")])
    assert [message.role for message in sent[1:]] == [Role.TOOL, Role.TOOL, Role.USER]


def test_a_result_without_a_call_is_told_as_text():
    sent = valid_history([result("gone", "42"), Message.user("q")])
    assert sent[0].role is Role.USER
    assert "42" in sent[0].content


def test_a_second_result_for_a_call_is_told_as_text():
    sent = valid_history([turn("a"), result("a", "one"), result("a", "two")])
    assert [message.role for message in sent] == [Role.ASSISTANT, Role.TOOL, Role.USER]


def test_ids_repeated_in_a_turn_are_made_unique_and_keep_their_results():
    sent = valid_history([turn("a", "a"), result("a", "one"), result("a", "two")])
    ids = [call.id for call in sent[0].tool_calls]
    assert len(set(ids)) == 2
    assert [(m.tool_call_id, m.content) for m in sent[1:]] == list(
        zip(ids, ["one", "two"], strict=True)
    )


def test_the_given_messages_are_not_changed():
    history = [turn("a", "a")]
    valid_history(history)
    assert history == [turn("a", "a")]


IDS = st.sampled_from(["", "a", "a_1", "b"])
MESSAGES = st.one_of(
    st.lists(IDS, max_size=3).map(lambda ids: turn(*ids)),
    IDS.map(result),
    st.just(Message.user("u")),
    st.just(Message.system("s")),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGES, max_size=12))
def test_any_messages_at_all_become_a_valid_history(messages):
    sent = valid_history(messages)
    position = 0
    while position < len(sent):
        message = sent[position]
        position += 1
        assert message.role is not Role.TOOL
        ids = [call.id for call in message.tool_calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
        answers = sent[position : position + len(ids)]
        assert [answer.tool_call_id for answer in answers] == ids
        position += len(ids)
    assert valid_history(sent) == sent
