"""A team that audits the Python code of a folder.

    tulip-actors run examples/audit_team.py [FOLDER] [--model openai:gpt-4o-mini] [--out DIR]

Three specialists, each an agent in a process of its own. A specialist's model makes one tool call;
that tool fans out over the files, one child call per file, in worker processes on any node. The
facts in the report come from what the tools returned, never from what a model wrote.

On a cluster, FOLDER has to be readable where `scan_...` runs. The files' text travels with the
calls, so the nodes that measure need no shared disk (but for files over MAX_SENT_BYTES).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import unicodedata
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import audit_report
from audit_measures import (
    Facts,
    measure_complexity,
    measure_documentation,
    measure_risk,
    read_source,
    summarise_complexity,
    summarise_documentation,
    summarise_risk,
)

from patterns import Orchestrator, Specialist
from tulip_actors import (
    ChatModel,
    ConfigError,
    Message,
    ModelChunkEvent,
    ModelResponse,
    Role,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    TulipEvent,
    tool,
)
from tulip_actors.cli.job import Job, stated_problem
from tulip_actors.models import OpenAIChatModel
from tulip_actors.tools import ToolSpec

DEFAULT_TARGET = Path(__file__).resolve().parent.parent
MAX_SENT_BYTES = 1_000_000
SMALL_MODELS = ("smollm2",)
EXAMPLES = (("web-shop", 12), ("src", 40), ("billing_2", 7))
TEMPERATURES = (0.0, 0.5, 1.0)
ANSWER_TOKENS = 100
"""Room for a call or a sentence; a small model goes on for as long as it may."""

# --- the folder ------------------------------------------------------------------------------


def python_files(folder: Path) -> list[str]:
    """The *.py files below a folder, sorted; no hidden folders, caches, environments, links."""
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_source(Path(here, name))]
        for name in files:
            path = Path(here, name)
            if name.endswith(".py") and path.is_file():
                found.append(path.relative_to(folder).as_posix())
    return sorted(found)


def _is_source(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in ("__pycache__", "node_modules"):
        return False
    return not (folder / "pyvenv.cfg").exists()


def label_of(folder: Path) -> str:
    """A name for the folder that every model can repeat; models are not told the path."""
    plain = unicodedata.normalize("NFKD", folder.resolve().name).encode("ascii", "ignore").decode()
    return re.sub(r"[^\w.]+", "-", plain).strip("-.") or "folder"


def granted_folder(named: str, ctx: ToolContext) -> Path:
    """The folder of this job, if that is what the model named.

    A model may look at nothing else, whatever it writes. Raises `ToolError`, which tells it what
    to send.
    """
    label = str(ctx.metadata["label"])
    if _letters(named) != _letters(label):
        raise ToolError(f'there is no folder "{named}". Call again with {{"folder": "{label}"}}')
    return Path(str(ctx.metadata["folder"]))


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


# --- the fan-out -----------------------------------------------------------------------------


def _item(folder: Path, path: str) -> dict[str, str | None]:
    """The arguments of one child call; what cannot be read here is left to the child to report."""
    source = None
    try:
        if (folder / path).stat().st_size <= MAX_SENT_BYTES:
            source = read_source(folder / path)
    except (OSError, SyntaxError, ValueError):
        pass
    shown = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {"folder": str(folder), "path": shown, "source": source}


async def measure_all(named: str, measure: Tool, ctx: ToolContext) -> Facts:
    """One child call per file, in parallel; a file that cannot be measured is only counted."""
    folder = granted_folder(named, ctx)
    paths = await asyncio.to_thread(python_files, folder)
    items = await asyncio.to_thread(lambda: [_item(folder, path) for path in paths])
    results = await ctx.map(measure, items, return_exceptions=True)
    measured = [result for result in results if isinstance(result, dict)]
    return {"files": len(paths), "unreadable": len(paths) - len(measured), "measured": measured}


@tool
async def scan_complexity(folder: str, ctx: ToolContext) -> Facts:
    """Measure size and complexity of every Python file of a folder.

    Args:
        folder: The folder's name, as the task gives it.
    """
    return summarise_complexity(await measure_all(folder, measure_complexity, ctx))


@tool
async def scan_documentation(folder: str, ctx: ToolContext) -> Facts:
    """Count the docstrings that are missing in every Python file of a folder.

    Args:
        folder: The folder's name, as the task gives it.
    """
    return summarise_documentation(await measure_all(folder, measure_documentation, ctx))


@tool
async def scan_risk(folder: str, ctx: ToolContext) -> Facts:
    """Find risky calls in every Python file of a folder.

    Args:
        folder: The folder's name, as the task gives it.
    """
    return summarise_risk(await measure_all(folder, measure_risk, ctx))


# --- the model -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownHow:
    """A small model that is shown what to do: finished examples go before the conversation.

    It imitates better than it follows instructions. What it answers is its own; when it makes no
    call, or made one that was refused, it is asked again, each time with more freedom.
    """

    model: OpenAIChatModel

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """See `ChatModel`."""
        shown, refused = _shown(messages, tools, settings)
        call_due = tools and not any(one.role is Role.TOOL for one in shown[-1:])
        attempts = TEMPERATURES[min(refused, len(TEMPERATURES) - 1) :]
        for temperature in attempts if call_due else attempts[:1]:
            chosen = {"max_tokens": ANSWER_TOKENS, "temperature": temperature, **settings}
            response = await self.model.complete(shown, tools, **chosen)
            if response.message.tool_calls:
                break
        return response

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> AsyncIterator[ModelChunkEvent]:
        """The first answer in pieces; what was shown to a reader cannot be asked for again."""
        shown, refused = _shown(messages, tools, settings)
        temperature = TEMPERATURES[min(refused, len(TEMPERATURES) - 1)]
        chosen = {"max_tokens": ANSWER_TOKENS, "temperature": temperature, **settings}
        async for chunk in self.model.stream(shown, tools, **chosen):
            yield chunk


def _shown(
    messages: Sequence[Message], tools: Sequence[ToolSpec] | None, settings: Mapping[str, object]
) -> tuple[list[Message], int]:
    """The conversation with examples of a tool's use, or of a choice, behind its instructions.

    Also the number of refused calls, which are left out: the model would imitate them.
    """
    instructions = [message for message in messages[:1] if message.role is Role.SYSTEM]
    examples: list[Message] = []
    if tools:
        # Two are enough, and every further one costs a second of reading. A folder that was in an
        # example would be taken as done.
        asked = " ".join(one.content for one in messages)
        free = [one for one in EXAMPLES if f'"{one[0]}"' not in asked]
        examples = [one for label, files in free[:2] for one in _use(tools[0], label, files)]
    elif "response_format" in settings:
        examples = [
            one
            for label, ids in (("src", IDS[1:2]), ("billing_2", IDS[::2]), ("web-shop", IDS))
            for one in _choice(label, ids)
        ]
    refused = {one.tool_call_id for one in messages if one.is_error}
    kept = [
        one
        for one in messages[len(instructions) :]
        if not one.is_error and not any(call.id in refused for call in one.tool_calls)
    ]
    return [*instructions, *examples, *kept], len(refused)


def _use(tool: ToolSpec, label: str, files: int) -> list[Message]:
    call = ToolCall(f"call_{label}", tool.name, {"folder": label})
    worst = [{"path": "cart.py", "complexity": files // 2 + 3}]
    result = {"files": files, "unreadable": 0, "most_complex": worst}
    return [
        Message.user(task_for(label, IDS)),
        Message.assistant("", (call,)),
        Message.tool(ToolResult(call.id, tool.name, json.dumps(result))),
        Message.assistant(f"It measured {files} files."),
    ]


def _choice(label: str, ids: Sequence[str]) -> list[Message]:
    answer = {"specialists": list(ids), "reasoning": f"The task names {', '.join(ids)}."}
    return [Message.user(task_for(label, ids)), Message.assistant(json.dumps(answer))]


# --- the job ---------------------------------------------------------------------------------

SPECIALISTS: Mapping[str, tuple[str, Tool]] = {
    "complexity": ("size and complexity of the code", scan_complexity),
    "documentation": ("docstrings that are missing", scan_documentation),
    "risk": ("risky calls, such as eval", scan_risk),
}
IDS = tuple(SPECIALISTS)


def task_for(label: str, ids: Sequence[str]) -> str:
    """The task, as the models are given it."""
    return f'Audit the folder "{label}": {", ".join(ids)}.'


def check(target: Path) -> None:
    """Refuse a target without Python files, before anything is started."""
    if not target.is_dir():
        raise ConfigError(f"{target} is not a folder: give the folder to audit")
    if not python_files(target):
        raise ConfigError(f"there are no Python files in {target}: give a folder that has some")


def job(target: Path, model: ChatModel) -> Job:
    """The team, its task, and the report that is made of its work."""
    small = isinstance(model, OpenAIChatModel) and model.model.startswith(SMALL_MODELS)
    used = ShownHow(model) if isinstance(model, OpenAIChatModel) and small else model
    team = Orchestrator(
        name="audit",
        model=used,
        specialists=[
            Specialist(
                id=name,
                description=description,
                system_prompt="You review code. Call your tool with the folder of the task, "
                "then say what it found.",
                tools=[scan],
                max_iterations=4,
            )
            for name, (description, scan) in SPECIALISTS.items()
        ],
    )
    label = label_of(target)

    def deliver(result: object, events: Sequence[TulipEvent], out: Path) -> Sequence[Path]:
        return audit_report.write(target, result, events, out)

    return Job(
        team,
        task_for(label, IDS),
        deliver,
        metadata={"folder": str(target.resolve()), "label": label},
        problem=problem,
    )


def problem(result: object, events: Sequence[TulipEvent]) -> str | None:
    """Why the audit is not what it should be: a member failed, or its model used no tool."""
    members: dict[str, list[str]] = {}
    for one in audit_report.members_of(events):
        if one.state.startswith("failed"):
            members.setdefault(one.state, []).append(one.id)
        elif one.scan is None:
            members.setdefault("the model made no successful scan", []).append(one.id)
    each = [f"{', '.join(ids)}: {text}" for text, ids in members.items()]
    return "; ".join(each) or stated_problem(result, events)
