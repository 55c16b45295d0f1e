"""The commands and their options. What they do is in the files beside this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tulip_actors.errors import ClusterUnreachable, ConfigError, TulipError, VersionMismatch

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="tulip-actors",
    help="LLM agents as Ray actors: run a job, and look at what runs on a cluster.",
    pretty_exceptions_enable=False,  # they would print the values of local variables
    add_completion=False,
)

Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a cluster's head, or 'auto'. Default: RAY_ADDRESS."),
]
Namespace = Annotated[str | None, typer.Option(help="Agents made with namespace=... of their own.")]


def run_app() -> NoReturn:
    """Parse the command line, do it, end the process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show it shows '?'
    app()
    raise SystemExit(OK)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"tulip-actors {version_of('tulip-actors')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A Python file that defines job(target, model).")],
    path: Annotated[Path | None, typer.Argument(help="What the job works on.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="PREFIX:MODEL, as in openai:gpt-4o-mini. Default: OPENAI_MODEL if OPENAI_BASE_URL "
            "or OPENAI_API_KEY is set, else a small local model, which is started and stopped."
        ),
    ] = None,
    address: Address = None,
    out: Annotated[Path, typer.Option(help="The folder for what the job leaves.")] = Path("."),
    json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Run a job: a team of agents and what is to be made of their work.

    Ends with 0, 1 when the job failed, 2 for bad input, 130 after Ctrl-C. What the job leaves is
    written in any case, as far as it came.
    """
    from tulip_actors.cli.run import RunOptions
    from tulip_actors.cli.run import run as run_job

    options = RunOptions(file, path, model, address, out, json)

    def say(line: str) -> None:
        to_stderr = json or line.startswith(("error:", "interrupted:"))
        typer.echo(line, err=to_stderr)

    _exit_with(lambda: run_job(options, say))


@app.command()
def ps(
    address: Address = None,
    namespace: Namespace = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per agent.")] = False,
) -> None:
    """List the agents and teams on a running cluster."""
    from tulip_actors.cli.look import show_agents

    _exit_with(lambda: show_agents(address, namespace, as_json=json))


@app.command()
def events(
    follow: Annotated[bool, typer.Option(help="Go on with what comes; Ctrl-C ends it.")] = False,
    run: Annotated[str | None, typer.Option(help="Only this run's.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's, by its name.")] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Only of this type, as in tool_start. Repeatable.")
    ] = None,
    address: Address = None,
    namespace: Namespace = None,
    json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Show what a running cluster's bus holds, from the oldest event on."""
    from tulip_actors.cli.look import EventOptions, show_events

    options = EventOptions(follow, run, agent, tuple(type or ()), address, namespace, json)
    _exit_with(lambda: show_events(options))


@app.command()
def runs(
    address: Address = None,
    namespace: Namespace = None,
    store: Annotated[
        str | None,
        typer.Option(help="Look into a store, without a cluster: sqlite:///runs.db, file:///DIR."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List the runs on a running cluster, or those of a store, the newest last.

    "left" is a run that has not ended and that nobody conducts: attach to it, and it goes on.
    """
    from tulip_actors.cli.runs import Where, show_runs

    _exit_with(lambda: show_runs(Where.of(address, namespace), store, as_json=json))


@app.command()
def cancel(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID")],
    now: Annotated[bool, typer.Option("--now", help="At once, not at its next turn.")] = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Stop a run."""
    from tulip_actors.cli.runs import Where
    from tulip_actors.cli.runs import cancel as cancel_it

    where = Where.of(address, namespace)
    _exit_with(lambda: cancel_it(where, run_id, at_once=now, say=typer.echo))


@app.command()
def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID")],
    response: Annotated[str, typer.Argument(help="JSON; what is no JSON is text.")],
    interrupt: Annotated[
        str | None, typer.Option(help="Which question; needed when several are open.")
    ] = None,
    address: Address = None,
    namespace: Namespace = None,
    json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Answer a run that waits for it, and show how it goes on.

    Ends with 0 when the run does, or asks the next question; with 1 when it fails. Ctrl-C ends the
    showing, not the run.
    """
    from tulip_actors.cli.runs import Reply, Where
    from tulip_actors.cli.runs import resume as resume_it

    where, reply = Where.of(address, namespace), Reply(run_id, response, interrupt)
    _exit_with(lambda: resume_it(where, reply, as_json=json))


@app.command()
def drain(
    agent_id: Annotated[str, typer.Argument(metavar="AGENT_ID")],
    seconds: Annotated[float, typer.Option(min=0, help="How long its runs may go on.")] = 30,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """End an agent without ending its runs.

    It takes no new ones; those that have not ended in time are left as they are stored, and go on
    where an agent with the same store attaches to them.
    """
    from tulip_actors.cli.runs import Where
    from tulip_actors.cli.runs import drain as drain_it

    where = Where.of(address, namespace)
    _exit_with(lambda: drain_it(where, agent_id, seconds, typer.echo))


def _exit_with(command: Callable[[], int]) -> NoReturn:
    """Run a command; its errors become a line on standard error and an exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except (ConfigError, ClusterUnreachable, VersionMismatch) as error:
        code = _failed(error, BAD_INPUT)
    except TulipError as error:
        code = _failed(error, FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as `head` does. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OK
    raise typer.Exit(code)


def _failed(error: TulipError, code: int) -> int:
    typer.echo(f"error: {error}", err=True)
    return code
