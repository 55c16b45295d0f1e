"""Arguments that are wrong in a way that models often are, and whose meaning is plain.

What may live here: the two mends. `null` where it does not fit stands for "left out" (a strict
schema has models send every argument), and a list or an object that was written as JSON text is
that list or object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from tulip_actors.core.frozen import Json

_CONTAINER_WANTED = frozenset(
    f"{kind}_type"
    for kind in (
        *("list", "set", "frozen_set", "tuple", "dict", "mapping", "iterable"),
        *("model", "model_attributes", "dataclass"),
    )
) | {"sequence_str"}
"""Types of problems for which text may hold what is wanted."""


def mended(
    arguments: Mapping[str, Json], problems: Sequence[ErrorDetails]
) -> dict[str, Any] | None:
    """A copy of the arguments in which what can be mended is; None if nothing can."""
    copy = _thawed(arguments)
    done = [_mend(copy, problem) for problem in problems]
    return copy if any(done) else None


def _mend(arguments: dict[str, Any], problem: ErrorDetails) -> bool:
    holder, key = _place(arguments, problem["loc"])
    if holder is None:
        return False
    if holder[key] is None and isinstance(holder, dict):
        del holder[key]
        return True
    opened = _opened(holder[key]) if problem["type"] in _CONTAINER_WANTED else None
    if opened is None:
        return False
    holder[key] = opened
    return True


def _place(value: Any, path: Sequence[int | str]) -> tuple[Any, Any]:
    """The container and the key that a problem's path leads to; None and None for the arguments."""
    holder, key = None, None
    for part in path:
        in_dict = isinstance(value, dict) and part in value
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_dict or in_list:  # anything else is the name of a union's member
            holder, key, value = value, part, value[part]
    return holder, key


def _opened(value: Any) -> list[Any] | dict[str, Any] | None:
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return None
    try:
        opened = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return opened if isinstance(opened, list | dict) else None


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(one) for key, one in value.items()}
    return [_thawed(one) for one in value] if isinstance(value, list) else value
