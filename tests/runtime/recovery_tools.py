"""Tools whose effect is a line in a ledger, and which a test can hold up in mid-body."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.runtime.policy_tools import logged
from tests.runtime.support import eventually, exists, write_pid
from tulip_actors import ToolContext, interrupt, tool

HELD_UP_S = 60.0


def open_gate(gate: str) -> None:
    """Let the body that waits there, or comes there, go on."""
    write_pid(f"{gate}.open")


def refunds(log: str, *, distinct: bool = False) -> int:
    """How many refunds the ledger has; `distinct` as one that looks at keys counts them."""
    path = Path(f"{log}.ledger")
    lines = path.read_text().splitlines() if path.exists() else []
    return len(set(lines)) if distinct else len(lines)


def _enter(log: str, key: str) -> None:
    with Path(f"{log}.ledger").open("a") as ledger:
        ledger.write(f"{key}\n")


def _wait_at(gate: str) -> None:
    write_pid(f"{gate}.waits")
    until_s = time.monotonic() + HELD_UP_S
    while not exists(f"{gate}.open") and time.monotonic() < until_s:
        time.sleep(0.02)


@tool
def refund(log: str) -> str:
    """Refund.

    Args:
        log: where to note it.
    """
    _enter(log, f"plain {time.time_ns()} {os.getpid()}")
    return "refunded"


@tool
def pay_one(log: str, number: int) -> str:
    """Pay.

    Args:
        log: where to note it.
        number: which payment.
    """
    time.sleep(0.05)
    _enter(log, str(number))
    time.sleep(0.05)
    return f"paid {number}"


@tool
def refund_slowly(log: str, gate: str) -> str:
    """Refund, and then wait.

    Args:
        log: where to note it.
        gate: where to wait.
    """
    with logged(log):
        _enter(log, f"slow {time.time_ns()} {os.getpid()}")
        _wait_at(gate)
    return "refunded slowly"


@tool(idempotent=True)
def refund_with_key(log: str, gate: str, ctx: ToolContext) -> str:
    """Refund at a provider that knows the key.

    Args:
        log: where to note it.
        gate: where to wait.
    """
    _enter(log, ctx.idempotency_key)
    _wait_at(gate)
    return "refunded with key"


@tool
def ask_and_refund(log: str, gate: str) -> str:
    """Refund if a human says so.

    Args:
        log: where to note it.
        gate: where to wait.
    """
    if interrupt("Refund?") != "yes":
        return "not refunded"
    _enter(log, f"asked {time.time_ns()}")
    _wait_at(gate)
    return "refunded after asking"


@tool
async def refund_a_part(part: int, log: str, gate: str) -> str:
    """Refund one part.

    Args:
        part: which one.
        log: where to note it.
        gate: where to wait.
    """
    with logged(log):
        _enter(log, f"part {part}")
        if part:
            write_pid(f"{gate}.waits")
            await eventually(lambda: exists(f"{gate}.open"), "the gate is open")
    return f"part {part}"


@tool
async def fans_out(log: str, gate: str, ctx: ToolContext) -> str:
    """Refund in three parts.

    Args:
        log: where to note it.
        gate: where to wait.
    """
    items = [{"part": part, "log": log, "gate": gate} for part in range(3)]
    return ", ".join(map(str, await ctx.map(refund_a_part, items)))


RECOVERY_TOOLS = [refund, refund_slowly, refund_with_key, ask_and_refund, fans_out]
