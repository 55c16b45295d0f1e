"""Messages as every provider knows them, kept light because a history holds thousands.

Frozen slots dataclasses, not pydantic models: a third of the memory and half of the objects that
the cyclic garbage collector has to visit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tulip_actors.core.frozen import EMPTY, FrozenDict, JsonObject, clean_text, freeze_object
from tulip_actors.core.quick import quick_init


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


_ASSISTANT = Role.ASSISTANT  # to look a member of an Enum up takes long


@quick_init
@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to call a tool.

    `id` is the provider's and may repeat; the runtime's own key of a call is `CallKey`.
    `malformed` holds the arguments' text when it is not a JSON object; `arguments` is then empty,
    the call is refused with an error for the model, and the history stays valid.
    """

    id: str
    name: str
    arguments: JsonObject = EMPTY
    malformed: str | None = None

    def __post_init__(self) -> None:
        if type(self.arguments) is not FrozenDict:
            frozen = freeze_object(self.arguments, f"arguments of {self.name}")
            object.__setattr__(self, "arguments", frozen)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave, as the model sees it. Exactly one of result and error is meant."""

    tool_call_id: str
    name: str
    content: str
    is_error: bool = False


@quick_init
@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `tool_calls` belong to assistant messages, `tool_call_id` and `name` to tool messages;
    `reasoning` is text a provider returned in a separate channel.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    is_error: bool = False

    def __post_init__(self) -> None:
        if not self.content.isascii():
            object.__setattr__(self, "content", clean_text(self.content))
        if self.reasoning is not None and not self.reasoning.isascii():
            object.__setattr__(self, "reasoning", clean_text(self.reasoning))

    @classmethod
    def system(cls, content: str) -> Message:
        """Instructions."""
        return cls(Role.SYSTEM, content)

    @classmethod
    def user(cls, content: str) -> Message:
        """What the user says."""
        return cls(Role.USER, content)

    @classmethod
    def assistant(
        cls,
        content: str = "",
        tool_calls: tuple[ToolCall, ...] = (),
        reasoning: str | None = None,
    ) -> Message:
        """What the model says, with the calls it wants made."""
        return cls(_ASSISTANT, content, tool_calls, None, None, reasoning)

    @classmethod
    def tool(cls, result: ToolResult) -> Message:
        """The answer to one tool call."""
        return cls(
            Role.TOOL,
            result.content,
            tool_call_id=result.tool_call_id,
            name=result.name,
            is_error=result.is_error,
        )
