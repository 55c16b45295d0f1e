"""What every RunStore must do, as tests: subclass `RunStoreConformance` in pytest and run them.

    import pytest
    from tulip_actors.testing.stores import RunStoreConformance

    class TestMyStore(RunStoreConformance):
        @pytest.fixture(autouse=True)
        def _place(self, tmp_path):
            self.path = tmp_path / "runs"

        async def make_store(self):
            return MyStore(self.path)

        async def reopen(self, store):
            return MyStore(self.path)

The tests are coroutines: with pytest-asyncio in its strict mode put `@pytest.mark.asyncio` on the
class, with anyio `@pytest.mark.anyio`. They need no clock: a lease of 0 seconds is over at once.
Nothing here imports pytest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import EventSource, ThinkEvent
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record, RunEnded, RunRequest, RunStarted, StepDone
from tulip_actors.errors import StaleEpoch, ThreadBusy, ThreadForgotten

_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_LONG_S, _OVER_S = 600.0, 0.0
_MANY = 1_000


def started(run_id: str, thread_id: str) -> Record:
    """The first record of a run."""
    return RunStarted(run_id, 0, _AT, RunRequest(run_id, thread_id, "hällo"), "agent_1")


def step(run_id: str, number: int) -> Record:
    """Some record of a run that can be told from its others."""
    return StepDone(run_id, number, _AT, f"step:{number}", {"ü": [number, None]})


def ended(run_id: str, number: int) -> Record:
    """The last record of a run."""
    return RunEnded(run_id, number, _AT, "complete", "complete")


def emitted(run_id: str, number: int) -> Emitted:
    """An event of a run."""
    source = EventSource(run_id=run_id, thread_id="t", agent="a", seq=number, node_id="node", pid=1)
    event = ThinkEvent(iteration=number, reasoning="Söll ich?", timestamp=_AT, source=source)
    return Emitted(run_id, number, event)


class RunStoreConformance(ABC):
    """The tests. Each makes a store of its own; `make_store` gives one on an empty storage."""

    @abstractmethod
    async def make_store(self) -> RunStore:
        """A store on a storage that is empty and this test's alone."""

    @abstractmethod
    async def reopen(self, store: RunStore) -> RunStore:
        """Another store on the storage of `store`, as another process would open it."""

    # records

    async def test_what_was_appended_is_read_back_in_order(self) -> None:
        store = await self.make_store()
        records = [started("r", "t"), step("r", 1), step("r", 2), ended("r", 3)]
        epoch = await store.acquire("t", "r", _LONG_S)
        await store.append("t", epoch, records[:1])
        await store.append("t", epoch, records[1:])
        await _reads(store, "t", records)
        await _reads(await self.reopen(store), "t", records)

    async def test_read_begins_after_the_position_it_is_given(self) -> None:
        store = await self.make_store()
        records = await _wrote(store, "t", "r", 4)
        for after in (1, 3, 4, 99):
            await _reads(store, "t", records[after:], after)

    async def test_a_thread_that_nobody_wrote_is_empty(self) -> None:
        store = await self.make_store()
        await _reads(store, "nowhere", [])
        await store.acquire("t", "r", _LONG_S)
        await _reads(store, "t", [])

    async def test_an_empty_append_adds_nothing_and_is_fenced_all_the_same(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r", _LONG_S)
        await store.append("t", epoch, [])
        await _reads(store, "t", [])
        await store.acquire("t", "r", _LONG_S)
        with raising(StaleEpoch):
            await store.append("t", epoch, [])

    async def test_a_thousand_records_come_back_from_one_append_and_from_many(self) -> None:
        store = await self.make_store()
        records = [step("r", number) for number in range(_MANY)]
        epoch = await store.acquire("t", "r", _LONG_S)
        await store.append("t", epoch, records)
        for start in range(0, _MANY, 50):
            await store.append("t", epoch, records[start : start + 50])
        await _reads(store, "t", [*records, *records])
        await _reads(store, "t", records[-1:], 2 * _MANY - 1)

    async def test_threads_do_not_mix(self) -> None:
        store = await self.make_store()
        one, two = await _wrote(store, "one", "r1", 2), await _wrote(store, "two", "r2", 3)
        await _reads(store, "one", one)
        await _reads(store, "two", two)

    async def test_a_thread_may_have_any_name(self) -> None:
        store = await self.make_store()
        names = (
            "..",
            "a/b",
            "/etc/passwd",
            "thé réad",
            "线程 🌷",
            "x" * 300,
            "A",
            "a",
            "a\nb",
            " ",
        )
        written = {
            name: await _wrote(store, name, f"run {number}", 1) for number, name in enumerate(names)
        }
        for number, (name, records) in enumerate(written.items()):
            await _reads(store, name, records)
            _equal(await store.find(f"run {number}"), name, f"the thread of run {number}")

    # runs

    async def test_the_thread_of_a_run_is_found_once_it_has_begun(self) -> None:
        store = await self.make_store()
        _equal(await store.find("r"), None, "the thread of a run nobody knows")
        await _wrote(store, "t", "r", 1)
        _equal(await store.find("r"), "t", "the thread of the run")
        _equal(await (await self.reopen(store)).find("r"), "t", "the same, elsewhere")

    async def test_a_run_without_a_thread_is_found_under_its_own_id(self) -> None:
        store = await self.make_store()
        await _wrote(store, "r", "r", 1)
        _equal(await store.find("r"), "r", "the thread of the run")

    # epochs and leases

    async def test_a_second_owner_is_refused_while_the_lease_runs(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r1", _LONG_S)
        with raising(ThreadBusy) as refused:
            await store.acquire("t", "r2", _LONG_S)
        _equal(getattr(refused[0], "run_id", None), "r1", "who holds the thread")
        await store.append("t", epoch, [step("r1", 0)])
        _equal(await store.find("r2"), None, "the thread of the refused run")

    async def test_an_owner_is_named_by_its_run(self) -> None:
        store = await self.make_store()
        await store.acquire("t", "r1/answer_1", _LONG_S)
        with raising(ThreadBusy) as refused:
            await store.acquire("t", "r1/answer_2", _LONG_S)
        _equal(getattr(refused[0], "run_id", None), "r1", "who holds the thread")

    async def test_the_same_owner_takes_over_from_itself(self) -> None:
        store = await self.make_store()
        old = await store.acquire("t", "r", _LONG_S)
        new = await store.acquire("t", "r", _LONG_S)
        _greater(new, old)
        with raising(StaleEpoch):
            await store.append("t", old, [step("r", 0)])
        await store.append("t", new, [step("r", 1)])
        await _reads(store, "t", [step("r", 1)])

    async def test_a_lease_that_is_over_lets_the_next_owner_in(self) -> None:
        store = await self.make_store()
        old = await store.acquire("t", "r1", _OVER_S)
        new = await store.acquire("t", "r2", _LONG_S)
        _greater(new, old)
        with raising(StaleEpoch):
            await store.append("t", old, [step("r1", 0)])
        with raising(StaleEpoch):
            await store.renew("t", old, _LONG_S)

    async def test_a_lease_that_is_over_may_be_renewed_until_somebody_comes(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r1", _OVER_S)
        await store.renew("t", epoch, _LONG_S)
        with raising(ThreadBusy):
            await store.acquire("t", "r2", _LONG_S)

    async def test_a_thread_given_back_is_free_at_once(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r1", _LONG_S)
        await store.release("t", epoch)
        _greater(await store.acquire("t", "r2", _LONG_S), epoch)

    async def test_giving_back_what_another_took_changes_nothing(self) -> None:
        store = await self.make_store()
        old = await store.acquire("t", "r1", _OVER_S)
        await store.acquire("t", "r2", _LONG_S)
        await store.release("t", old)
        await store.release("never acquired", 1)
        with raising(ThreadBusy):
            await store.acquire("t", "r3", _LONG_S)

    async def test_an_epoch_is_above_what_an_owner_has_had_elsewhere(self) -> None:
        store = await self.make_store()
        _greater(await store.acquire("t", "r", _LONG_S, above=41), 41)
        _greater(await store.acquire("t", "r", _LONG_S, above=3), 42)

    async def test_nobody_writes_who_has_not_acquired(self) -> None:
        store = await self.make_store()
        with raising(StaleEpoch, ThreadForgotten):
            await store.append("t", 1, [step("r", 0)])
        with raising(StaleEpoch, ThreadForgotten):
            await store.renew("t", 1, _LONG_S)

    async def test_of_two_stores_on_one_storage_one_wins(self) -> None:
        one = await self.make_store()
        two = await self.reopen(one)
        first = await one.acquire("t", "r1", _LONG_S)
        with raising(ThreadBusy):
            await two.acquire("t", "r2", _LONG_S)
        second = await two.acquire("t", "r1", _LONG_S)
        with raising(StaleEpoch):
            await one.append("t", first, [step("r1", 0)])
        await two.append("t", second, [step("r1", 1)])
        await _reads(one, "t", [step("r1", 1)])

    # events

    async def test_events_are_kept_with_the_records_that_they_tell_of(self) -> None:
        store = await self.make_store()
        records = [started("r", "t"), step("r", 1), step("r", 2)]
        epoch = await store.acquire("t", "r", _LONG_S)
        for number, record in enumerate(records):
            await store.append("t", epoch, [record], [emitted("r", number)])
        await store.append("t", epoch, [], [emitted("r", 3)])
        kept = range(4) if store.keeps_events else range(0)
        await _tells(store, "r", kept)
        await _tells(await self.reopen(store), "r", kept, after=1)
        await _tells(store, "r", range(0), after=3)
        await _reads(store, "t", records)

    async def test_of_an_append_that_is_refused_nothing_is_kept(self) -> None:
        store = await self.make_store()
        old = await store.acquire("t", "r", _LONG_S)
        await store.acquire("t", "r", _LONG_S)
        with raising(StaleEpoch):
            await store.append("t", old, [started("r", "t"), step("r", 1)], [emitted("r", 0)])
        await _reads(store, "t", [])
        await _tells(store, "r", range(0))

    # what a host has left

    async def test_a_host_that_died_has_left_what_it_did_not_give_back(self) -> None:
        store = await self.make_store()
        await store.acquire("t1", "r1", _LONG_S, host_id="h")
        await store.acquire("t2", "r2/answer", _OVER_S, host_id="h")
        given_back = await store.acquire("t3", "r3", _LONG_S, host_id="h")
        await store.release("t3", given_back)
        await store.acquire("t4", "r4", _LONG_S, host_id="another")
        await store.acquire("t5", "r5", _LONG_S)
        left = [("t1", "r1"), ("t2", "r2/answer")]
        _equal(sorted(await store.held_by("h")), left, "what the host holds")
        _equal(sorted(await (await self.reopen(store)).held_by("h")), left, "the same, elsewhere")
        _equal(list(await store.held_by("nobody")), [], "what nobody holds")

    async def test_what_another_host_took_over_is_its_own(self) -> None:
        store = await self.make_store()
        await store.acquire("t", "r", _LONG_S, host_id="old")
        await store.acquire("t", "r", _LONG_S, host_id="new")
        _equal(list(await store.held_by("old")), [], "what the old host holds")
        _equal(list(await store.held_by("new")), [("t", "r")], "what the new host holds")

    # looking over all

    async def test_every_run_is_listed_with_its_thread_and_whether_it_is_held(self) -> None:
        store = await self.make_store()
        _equal(list(await store.runs()), [], "the runs of an empty store")
        await _wrote(store, "t", "ended", 2)
        for thread_id, run_id, owner, lease_s in (
            ("t", "held", "held/answer_1", _LONG_S),
            ("over", "over", "over", _OVER_S),
            ("täglich/2", "another", "another", _LONG_S),
        ):
            epoch = await store.acquire(thread_id, owner, lease_s)
            await store.append(thread_id, epoch, [started(run_id, thread_id)], [emitted(run_id, 0)])
        expected = [
            StoredRun("another", "täglich/2", is_held=True),
            StoredRun("ended", "t", is_held=False),
            StoredRun("held", "t", is_held=True),
            StoredRun("over", "over", is_held=False),
        ]
        for one in (store, await self.reopen(store)):
            listed = sorted(await one.runs(), key=lambda run: run.run_id)
            _equal(listed, expected, "the runs of the store")

    async def test_the_runs_of_a_deleted_thread_are_not_listed(self) -> None:
        store = await self.make_store()
        await _wrote(store, "t", "r", 1)
        await store.delete("t")
        _equal(list(await store.runs()), [], "the runs of the store")

    # deleting

    async def test_a_deleted_thread_is_gone(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r", _LONG_S)
        await store.append("t", epoch, [started("r", "t")], [emitted("r", 0)])
        await store.release("t", epoch)
        kept = await _wrote(store, "another", "r2", 2)
        _equal(await store.delete("t"), True, "whether there was a thread to delete")
        _equal(await store.delete("t"), False, "whether there is one still")
        _equal(await store.find("r"), None, "the thread of the run")
        await _reads(store, "t", [])
        await _tells(store, "r", range(0))
        await _reads(store, "another", kept)

    async def test_a_thread_that_a_run_holds_is_not_deleted(self) -> None:
        store = await self.make_store()
        epoch = await store.acquire("t", "r", _LONG_S)
        await store.append("t", epoch, [step("r", 0)])
        with raising(ThreadBusy):
            await store.delete("t")
        await _reads(store, "t", [step("r", 0)])

    async def test_a_writer_of_a_deleted_thread_cannot_write_to_the_next_of_that_name(
        self,
    ) -> None:
        store = await self.make_store()
        old = await store.acquire("t", "r1", _OVER_S)
        _equal(await store.delete("t"), True, "whether there was a thread to delete")
        with raising(StaleEpoch):
            await store.append("t", old, [step("r1", 0)])
        _greater(await store.acquire("t", "r2", _LONG_S), old)
        with raising(StaleEpoch):
            await store.append("t", old, [step("r1", 0)])
        await _reads(store, "t", [])


@contextmanager
def raising(*kinds: type[Exception]) -> Iterator[list[Exception]]:
    """What is done inside must raise an error of such a kind, which is put into the list."""
    raised: list[Exception] = []
    try:
        yield raised
    except kinds as error:
        raised.append(error)
    if not raised:
        raise AssertionError(f"nothing raised {' or '.join(kind.__name__ for kind in kinds)}")


async def _wrote(store: RunStore, thread_id: str, run_id: str, count: int) -> list[Record]:
    """Records of a run that has its thread to itself, and gives it back."""
    records = [started(run_id, thread_id), *(step(run_id, n) for n in range(1, count))]
    epoch = await store.acquire(thread_id, run_id, _LONG_S)
    await store.append(thread_id, epoch, records)
    await store.release(thread_id, epoch)
    return records


async def _reads(
    store: RunStore, thread_id: str, expected: Sequence[Record], after: int = 0
) -> None:
    read = await store.read(thread_id, after)
    _equal(list(read), list(expected), f"the records of {thread_id!r} from {after} on")


async def _tells(store: RunStore, run_id: str, numbers: range, after: int = -1) -> None:
    found = [(one.seq, one.event) for one in await store.events_of(run_id, after)]
    expected = [(n, emitted(run_id, n).event) for n in numbers if n > after]
    _equal(found, expected, f"the events of {run_id!r} after {after}")


def _equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r:.500}, found {found!r:.500}")


def _greater(epoch: int, old: int) -> None:
    if epoch <= old:
        raise AssertionError(f"an epoch must be greater than those before it: {epoch} after {old}")
