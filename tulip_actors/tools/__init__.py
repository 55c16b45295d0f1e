"""Tools: what a model may call. Nothing here knows where a body runs."""

from tulip_actors.core.calls import ToolSpec
from tulip_actors.tools.context import ToolContext
from tulip_actors.tools.decorator import Tool, tool
from tulip_actors.tools.registry import MissingDescription, ToolRegistry

__all__ = ["MissingDescription", "Tool", "ToolContext", "ToolRegistry", "ToolSpec", "tool"]
