"""What the small model is shown before it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from tulip_actors import Message, ModelResponse, ToolCall, ToolResult
from tulip_actors.testing import text, tool_call


@dataclass
class Answers:
    """Stands for the small model: gives its answers in turn, and keeps what it was asked."""

    turns: list[Message]
    asked: list[list[Message]] = field(default_factory=list)
    temperatures: list[object] = field(default_factory=list)

    async def complete(self, messages, tools=None, **settings) -> ModelResponse:
        self.asked.append(list(messages))
        self.temperatures.append(settings["temperature"])
        return ModelResponse(self.turns.pop(0))


def task(audit, label: str) -> list[Message]:
    return [Message.system("Do."), Message.user(audit.task_for(label, audit.IDS))]


async def test_an_answer_without_a_call_is_asked_for_again_with_more_freedom(audit):
    model = Answers([text("It measured 9 files."), tool_call("scan_risk", folder="main")])
    shown = audit.ShownHow(model)
    response = await shown.complete(task(audit, "main"), [audit.scan_risk.spec])
    assert [call.name for call in response.message.tool_calls] == ["scan_risk"]
    assert model.temperatures == [0.0, 0.5]


async def test_after_all_attempts_the_last_answer_stands(audit):
    model = Answers([text("one"), text("two"), text("three")])
    shown = audit.ShownHow(model)
    response = await shown.complete(task(audit, "main"), [audit.scan_risk.spec])
    assert (response.message.content, model.turns) == ("three", [])


async def test_a_refused_call_is_not_shown_again(audit):
    call = ToolCall("c9", "scan_risk", {"folder": "wrong"})
    refused = [
        Message.assistant("", (call,)),
        Message.tool(ToolResult("c9", "scan_risk", "Error: there is no folder", is_error=True)),
    ]
    model = Answers([tool_call("scan_risk", folder="main")])
    shown = audit.ShownHow(model)
    await shown.complete([*task(audit, "main"), *refused], [audit.scan_risk.spec])
    assert model.asked[0][-1].content == audit.task_for("main", audit.IDS)
    assert not any(message.is_error for message in model.asked[0])
    assert model.temperatures == [0.5]


async def test_the_answer_after_a_result_is_taken_as_it_is(audit):
    call = ToolCall("c9", "scan_risk", {"folder": "main"})
    done = [Message.assistant("", (call,)), Message.tool(ToolResult("c9", "scan_risk", "{}"))]
    model = Answers([text("fine")])
    shown = audit.ShownHow(model)
    response = await shown.complete([*task(audit, "main"), *done], [audit.scan_risk.spec])
    assert response.message.content == "fine"


async def test_no_example_is_about_the_folder_of_the_task(audit):
    for label, _ in audit.EXAMPLES:
        model = Answers([tool_call("scan_risk", folder=label)])
        shown = audit.ShownHow(model)
        await shown.complete(task(audit, label), [audit.scan_risk.spec])
        tasks = [message.content for message in model.asked[0] if f'"{label}"' in message.content]
        assert tasks == [audit.task_for(label, audit.IDS)]
