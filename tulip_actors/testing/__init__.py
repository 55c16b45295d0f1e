"""Published doubles: models that answer from a script or a function. They run the real loop."""

from tulip_actors.testing.doubles import (
    FunctionModel,
    ModelRequest,
    ScriptedModel,
    text,
    tool_call,
    tool_calls,
)

__all__ = ["FunctionModel", "ModelRequest", "ScriptedModel", "text", "tool_call", "tool_calls"]
