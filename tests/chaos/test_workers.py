"""What a tool worker does when the dispatcher, whose task it is, has been killed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tulip_actors.runtime.tool_worker import Coroutines


def test_a_worker_whose_task_has_been_ended_for_it_is_left_without_a_word() -> None:
    bodies = Coroutines(cast(Any, None))
    bodies.leave()
    bodies.run()
    with pytest.raises(RuntimeError, match="closed"):
        bodies.begin([])
    bodies.leave()
