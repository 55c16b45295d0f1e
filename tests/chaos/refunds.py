"""Refunds that leave a line in a ledger outside, and the model that asks for them.

Kept apart from the test files, and free of pytest, because workers import it. A ledger is a file of
lines "order key": one per refund that was paid.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tulip_actors import Message, ToolContext, tool
from tulip_actors.testing import text, tool_call


def _line(order: str, key: str) -> bytes:
    return f"{order} {key}\n".encode()


def pay(ledger: str, order: str, key: str) -> None:
    """One line more, in one write."""
    descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, _line(order, key))
    finally:
        os.close(descriptor)


def pay_once(ledger: str, order: str, key: str) -> None:
    """One line more, unless the key is there: what a payment service does with a key."""
    descriptor = os.open(ledger, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _line(order, key) not in Path(ledger).read_bytes():
            os.write(descriptor, _line(order, key))
    finally:
        os.close(descriptor)


def paid(ledger: Path) -> list[tuple[str, str]]:
    """The refunds in a ledger: order and key of each."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [(order, key) for order, _, key in (line.partition(" ") for line in lines)]


@tool
async def look_up(order: str, seconds: float) -> str:
    """Find an order."""
    await asyncio.sleep(seconds)
    return f"{order} was paid"


@tool
def refund_plain(order: str, ledger: str, seconds: float) -> str:
    """Pay an order back; by a service that takes no key."""
    time.sleep(seconds)
    pay(ledger, order, "-")
    time.sleep(seconds)
    return f"refunded {order}"


@tool(idempotent=True)
def refund_recorded(order: str, ledger: str, seconds: float) -> str:
    """Pay an order back, once for the same arguments; by a service that takes no key."""
    time.sleep(seconds)
    pay(ledger, order, "-")
    time.sleep(seconds)
    return f"refunded {order}"


@tool(idempotent=True)
def refund_keyed(order: str, ledger: str, seconds: float, ctx: ToolContext) -> str:
    """Pay an order back; by a service that takes the call's key."""
    time.sleep(seconds)
    pay_once(ledger, order, ctx.idempotency_key)
    time.sleep(seconds)
    return f"refunded {order}"


@tool(idempotent=True)
async def refund_async(order: str, ledger: str, seconds: float, ctx: ToolContext) -> str:
    """The same as a coroutine, which tells how far it is."""
    ctx.progress(0.0, "asking")
    await asyncio.sleep(seconds)
    pay_once(ledger, order, ctx.idempotency_key)
    ctx.progress(0.5, "paid")
    await asyncio.sleep(seconds)
    return f"refunded {order}"


TOOLS = [look_up, refund_plain, refund_recorded, refund_keyed, refund_async]
REFUNDS = ("refund_plain", "refund_recorded", "refund_keyed", "refund_async")
TAKES_KEY = frozenset({"refund_keyed", "refund_async"})


def order_for(order: str, refund: str, ledger: Path, seconds: float) -> str:
    """A prompt: refund the order with that tool; every step takes so long."""
    return json.dumps({"order": order, "refund": refund, "ledger": str(ledger), "s": seconds})


async def cashier(messages: Sequence[Message], tools: object) -> Message:
    """Looks the order up, refunds it whatever came of that, and says what it was told."""
    asked = next(message.content for message in reversed(messages) if message.role == "user")
    order = json.loads(asked)
    after = [m for m in messages[_position(messages, asked) :] if m.role == "tool"]
    await asyncio.sleep(order["s"])
    if not after:
        return tool_call("look_up", order=order["order"], seconds=order["s"])
    if len(after) == 1:
        arguments = {"order": order["order"], "ledger": order["ledger"], "seconds": order["s"]}
        return tool_call(order["refund"], arguments)
    return text(f"the refund of {order['order']} was answered with: {after[-1].content}")


def _position(messages: Sequence[Message], content: str) -> int:
    return max(n for n, one in enumerate(messages) if one.role == "user" and one.content == content)
