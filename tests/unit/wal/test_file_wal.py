"""Group commit, back-pressure, trimming and failing writes of the file WAL."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.model.errors import Invalid, NotFound, StartRefused, Unavailable
from streamhouse.wal.recovery import WalOptions
from tests.unit.wal.wal_world import (
    SMALL,
    append_each,
    entry,
    file_wal,
    replayed,
    run,
    sim_disk,
    started,
    ticks,
    tp,
)


class Gate:
    """A slow disk: operations of one kind wait until they are let through."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._open = asyncio.Event()
        self.waiting = 0

    async def sleep(self, operation: str) -> None:
        if operation == self._operation:
            self.waiting += 1
            await self._open.wait()
            self.waiting -= 1

    def open(self) -> None:
        self._open.set()


def test_entries_that_arrive_during_a_sync_share_the_next_one() -> None:
    """SH-49: group commit. A hundred entries behind one slow sync cost two syncs, not a hundred."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk)
        heard = await started(wal)
        await ticks()
        before = disk.syncs
        gate = Gate("sync")
        disk.faults.sleep = gate.sleep
        wal.append(entry(0))
        await ticks()
        assert gate.waiting == 1
        for n in range(1, 101):
            wal.append(entry(n))
        await ticks()
        assert heard.durable == 0
        gate.open()
        await heard.until(101)
        assert heard.calls == [1, 101]
        assert disk.syncs - before == 2
        await wal.close()

    run(scenario())


def test_a_group_is_bounded_in_bytes() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, replace(SMALL, group_bytes_max=1000))
        heard = await started(wal)
        for n in range(5):
            wal.append(entry(n, 400))
        wal.append(entry(5, 5000))  # larger than a group may be: it goes alone
        await heard.until(6)
        assert heard.calls == [2, 4, 5, 6]
        await wal.close()

    run(scenario())


def test_a_lone_entry_with_a_waiter_is_not_delayed() -> None:
    """SH-51: the batch age bounds grouping for entries nobody waits for, and only those."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, replace(SMALL, batch_max_age_ms=60_000))
        heard = await started(wal)
        wal.append(entry(0, acks=0))
        await ticks()
        assert heard.durable == 0
        wal.append(entry(1, acks=1))
        await ticks()
        assert heard.calls == [2]
        await wal.close()

    run(scenario())


def test_entries_nobody_waits_for_are_written_after_the_batch_age() -> None:
    """SH-51."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, replace(SMALL, batch_max_age_ms=5))
        heard = await started(wal)
        began = asyncio.get_running_loop().time()
        for n in range(10):
            wal.append(entry(n, acks=0))
        await heard.until(10)
        assert heard.calls == [10]
        assert asyncio.get_running_loop().time() - began >= 0.004
        await wal.close()

    run(scenario())


def test_many_entries_nobody_waits_for_are_written_when_a_group_is_full() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, replace(SMALL, batch_max_age_ms=60_000, group_bytes_max=1000))
        heard = await started(wal)
        for n in range(9):
            wal.append(entry(n, 300, acks=0))
        wal.append(entry(9, 300, acks=1))
        await ticks()
        assert heard.durable == 10
        await wal.close()

    run(scenario())


def test_a_failed_sync_acknowledges_nothing_and_is_never_repeated() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk)
        heard = await started(wal)
        await append_each(wal, heard, [entry(0)])
        await ticks()
        syncs = disk.syncs
        failure = OSError(5, "Input/output error")
        disk.faults.write_error = failure
        wal.append(entry(1))
        wal.append(entry(2))
        await heard.until(3)
        disk.faults.write_error = None
        await ticks()
        assert heard.failures == [failure]
        assert heard.durable == 1
        assert disk.syncs == syncs
        assert wal.room_bytes == 0
        with pytest.raises(Unavailable):
            wal.append(entry(3))
        await wal.trim({tp(0): 100})
        await wal.close()
        assert heard.failures == [failure]
        assert heard.durable == 1
        assert disk.syncs == syncs

    run(scenario())


def test_a_full_disk_is_back_pressure_and_ends_when_space_returns() -> None:
    """No write ever meets ENOSPC: what was accepted becomes durable, the rest is refused."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, replace(SMALL, prepare_retry_ms=2))
        heard = await started(wal)
        await ticks()
        disk.faults.fill_disk()
        accepted = 0
        while True:
            try:
                await heard.until(wal.append(entry(accepted, 4000)))
            except Unavailable as refused:
                assert "disk is full" in str(refused)  # noqa: PT017
                break
            accepted += 1
        assert heard.durable == accepted
        assert not heard.failures
        assert wal.room_bytes < 8192
        disk.faults.create_error = None
        await asyncio.sleep(0.01)
        assert wal.room_bytes > SMALL.file_bytes // 2
        await heard.until(wal.append(entry(accepted, 4000)))
        assert heard.durable == accepted + 1
        await wal.close()

    run(scenario())


def test_trim_gives_room_on_a_full_disk() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        await append_each(wal, heard, [entry(n, 4000) for n in range(20)])
        disk.faults.fill_disk()
        accepted = 20
        with pytest.raises(Unavailable):  # noqa: PT012
            while True:
                await heard.until(wal.append(entry(accepted, 4000)))
                accepted += 1
        await wal.trim({tp(0): accepted})
        await append_each(wal, heard, [entry(accepted + n, 4000) for n in range(5)])
        assert heard.durable == accepted + 5
        await wal.close()

    run(scenario())


def test_entries_accepted_while_the_next_file_is_being_made_wait_for_it() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        gate = Gate("create_zeroed")
        disk.faults.sleep = gate.sleep
        for n in range(30):
            wal.append(entry(n, 4000))
        await ticks(200)
        written = heard.durable
        assert 0 < written < 30
        gate.open()
        await heard.until(30)
        await wal.close()
        assert await replayed(file_wal(disk)) == [(n + 1, entry(n, 4000)) for n in range(30)]

    run(scenario())


def test_close_writes_what_waits_for_a_file() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        for n in range(40):
            wal.append(entry(n, 4000))
        await wal.close()
        assert heard.durable == 40

    run(scenario())


def test_close_does_not_hang_on_a_full_disk() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        disk.faults.fill_disk()
        for n in range(30):
            wal.append(entry(n, 4000))
        await asyncio.wait_for(wal.close(), 5)
        assert 0 < heard.durable < 30
        found = await replayed(file_wal(disk))
        assert found == [(n + 1, entry(n, 4000)) for n in range(heard.durable)]

    run(scenario())


def test_the_files_stay_within_their_bound() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        for n in range(400):
            wal.append(entry(n, 3000))
            await heard.until(n + 1)
            if n % 7 == 0:
                await wal.trim({tp(0): n + 1})
            assert len(await disk.list_files()) <= SMALL.files_max
        await ticks()
        assert len(await disk.list_files()) <= 1 + 1 + SMALL.spare_files_max
        await wal.close()

    run(scenario())


def test_a_freed_file_is_not_touched_before_the_disk_knows_it_is_free() -> None:
    """Else a crash in between would look like a missing file."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        await append_each(wal, heard, [entry(n, 4000) for n in range(40)])
        await ticks()
        gate = Gate("sync")
        disk.faults.sleep = gate.sleep
        trimming = asyncio.create_task(wal.trim({tp(0): 40}))
        await ticks()
        assert gate.waiting == 1
        assert not trimming.done()
        disk.crash()
        gate.open()
        disk.faults.sleep = None
        await trimming
        await wal.close()
        found = await replayed(file_wal(disk))
        first = found[0][0]
        assert found == [(n, entry(n - 1, 4000)) for n in range(first, 41)]

    run(scenario())


def test_oldest_names_the_partitions_that_hold_the_oldest_file() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        assert wal.oldest() == frozenset()
        await append_each(wal, heard, [entry(0, partition=1), entry(1, partition=2)])
        assert wal.oldest() == {tp(1), tp(2)}
        await append_each(wal, heard, [entry(n, 4000, partition=3) for n in range(40)])
        assert {tp(1), tp(2)} <= wal.oldest()
        await wal.trim({tp(1): 1, tp(2): 2, tp(3): 40})
        assert wal.oldest() == {tp(3)}
        await wal.close()

    run(scenario())


def test_an_entry_larger_than_a_file_is_invalid_not_retriable() -> None:
    async def scenario() -> None:
        wal = file_wal(sim_disk())
        heard = await started(wal)
        with pytest.raises(Invalid):
            wal.append(entry(0, SMALL.file_bytes))
        assert wal.append(entry(0)) == 1
        await heard.until(1)
        await wal.close()

    run(scenario())


def test_queued_entries_cannot_be_read_yet() -> None:
    async def scenario() -> None:
        wal = file_wal(sim_disk())
        await started(wal)
        wal.append(entry(0))
        with pytest.raises(NotFound):
            await wal.read(1)
        await wal.close()

    run(scenario())


def test_a_start_on_a_full_disk_is_refused_with_a_reason() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        disk.faults.fill_disk()
        with pytest.raises(StartRefused, match="No space left"):
            await started(file_wal(disk))

    run(scenario())


def test_room_counts_down_to_nothing() -> None:
    async def scenario() -> None:
        options = WalOptions(file_bytes=32 * 1024, bytes_max=64 * 1024)
        wal = file_wal(sim_disk(), options)
        heard = await started(wal)
        room = wal.room_bytes
        assert 50_000 < room < 64 * 1024
        accepted = 0
        while wal.room_bytes >= 2048:
            wal.append(entry(accepted, 1000))
            accepted += 1
            assert wal.room_bytes < room
            room = wal.room_bytes
        with pytest.raises(Unavailable):
            wal.append(entry(accepted, 4000))
        await heard.until(accepted)
        await wal.close()

    run(scenario())
