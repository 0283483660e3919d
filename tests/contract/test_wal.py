"""What every Wal promises: the file WAL on a real directory and on a SimDisk, and MemoryWal."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamhouse.model.errors import NotFound, Unavailable
from streamhouse.ports.wal import Wal
from streamhouse.wal.file_wal import FileWal
from streamhouse.wal.memory_wal import MemoryWal
from streamhouse.wal.os_disk import OsDisk
from tests.sim.disk import SimDisk
from tests.unit.wal.wal_world import (
    SMALL,
    SeededIds,
    append_each,
    entry,
    replayed,
    run,
    started,
    ticks,
    tp,
)

Open = Callable[[], Wal]  # the first call makes a WAL, later ones open it again after a kill


def _open_on_directory(path: Path) -> Iterator[Open]:
    disks: list[OsDisk] = []

    def open_wal() -> Wal:
        disks.append(OsDisk(path / "wal"))
        return FileWal(disks[-1], SeededIds(len(disks)), SMALL)

    yield open_wal
    for disk in disks:
        disk.close()


def _open_on_sim_disk() -> Iterator[Open]:
    disk = SimDisk(random.Random(1))
    opened = 0

    def open_wal() -> Wal:
        nonlocal opened
        opened += 1
        disk.kill()
        return FileWal(disk, SeededIds(opened), SMALL)

    yield open_wal


def _open_in_memory() -> Iterator[Open]:
    wals: list[MemoryWal] = []

    def open_wal() -> Wal:
        wals.append(wals[-1].reopened() if wals else MemoryWal(bytes_max=SMALL.bytes_max))
        return wals[-1]

    yield open_wal


@pytest.fixture(params=["directory", "sim_disk", "memory"])
def open_wal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    match request.param:
        case "directory":
            yield from _open_on_directory(tmp_path)
        case "sim_disk":
            yield from _open_on_sim_disk()
        case _:
            yield from _open_in_memory()


def test_an_empty_wal_replays_nothing_and_numbers_from_one(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        assert await replayed(wal) == []
        heard = await started(wal)
        assert wal.append(entry(0)) == 1
        assert wal.append(entry(1)) == 2
        await heard.until(2)
        await wal.close()

    run(scenario())


def test_durable_entries_are_replayed_once_in_order_with_the_same_bytes(open_wal: Open) -> None:
    """SH-55, SH-56: what was reported durable comes back, same numbers, same offsets."""

    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        entries = [
            entry(n, 10 + n * 37, partition=n % 3, acks=(-1, 1, 0)[n % 3]) for n in range(40)
        ]
        sequences = [wal.append(one) for one in entries]
        await heard.until(len(entries))
        await wal.close()
        assert await replayed(open_wal()) == list(zip(sequences, entries, strict=True))

    run(scenario())


def test_nothing_is_durable_within_append(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        wal.append(entry(0, 500))
        assert heard.durable == 0
        assert wal.queued_bytes == 500
        await heard.until(1)
        assert wal.queued_bytes == 0
        await wal.close()

    run(scenario())


def test_numbers_go_on_without_gaps_after_each_restart(open_wal: Open) -> None:
    """SH-56: dense across restarts, each entry once, however often it is opened."""

    async def scenario() -> None:
        for life in range(5):
            wal = open_wal()
            found = await replayed(wal)
            assert found == [(n + 1, entry(n)) for n in range(life * 3)]
            heard = await started(wal)
            for n in range(life * 3, life * 3 + 3):
                assert wal.append(entry(n)) == n + 1
            await heard.until(life * 3 + 3)
            await wal.close()

    run(scenario())


def test_the_wal_id_survives(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        await started(wal)
        first = wal.wal_id
        await wal.close()
        again = open_wal()
        await replayed(again)
        assert len(first) == 32
        assert again.wal_id == first

    run(scenario())


def test_a_durable_entry_is_read_back_before_and_after_restart(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        entries = [entry(n, 3000 + n) for n in range(30)]
        await append_each(wal, heard, entries)
        for sequence in (1, 17, 30):
            assert await wal.read(sequence) == entries[sequence - 1].body
        await wal.close()
        again = open_wal()
        await replayed(again)
        await started(again)
        for sequence in (1, 17, 30):
            assert await again.read(sequence) == entries[sequence - 1].body
        with pytest.raises(NotFound):
            await again.read(31)
        await again.close()

    run(scenario())


def test_many_entries_are_read_in_the_order_asked(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        entries = [entry(n, 2500 + n) for n in range(40)]
        await append_each(wal, heard, entries)
        for asked in ([], [7], [1, 2, 3, 9, 38, 40], [30, 2, 2, 31, 1]):
            assert await wal.read_many(asked) == [entries[n - 1].body for n in asked]
        with pytest.raises(NotFound):
            await wal.read_many([1, 41])
        await wal.close()

    run(scenario())


def test_the_wal_id_is_known_after_open_and_stays_the_same(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        await wal.open()
        known = wal.wal_id
        assert await replayed(wal) == []
        await started(wal)
        assert wal.wal_id == known
        await wal.close()
        again = open_wal()
        await again.open()
        assert again.wal_id == known

    run(scenario())


def test_the_wal_is_low_before_it_is_full_and_no_more_after_trim(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        assert not wal.is_low
        appended = 0
        while not wal.is_low:
            await heard.until(wal.append(entry(appended, 4000)))
            appended += 1
        await heard.until(wal.append(entry(appended, 4000)))
        await wal.trim({tp(0): appended + 1})
        assert not wal.is_low
        await wal.close()

    run(scenario())


def test_a_full_wal_refuses_and_recovers_by_trim(open_wal: Open) -> None:
    """Bounded on disk: refused with nothing queued, then room again."""

    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        accepted = 0
        with pytest.raises(Unavailable):  # noqa: PT012
            while True:
                await heard.until(wal.append(entry(accepted, 4000)))
                accepted += 1
        assert accepted > 30
        await heard.until(accepted)
        assert wal.queued_bytes == 0
        room_full = wal.room_bytes
        assert wal.oldest() == {tp(0)}
        await wal.trim({tp(0): accepted})
        assert wal.room_bytes > room_full + 100_000
        assert wal.append(entry(accepted, 4000)) == accepted + 1
        await heard.until(accepted + 1)
        await wal.close()
        found = await replayed(open_wal())
        assert found[-1] == (accepted + 1, entry(accepted, 4000))

    run(scenario())


def test_trim_keeps_what_is_not_yet_in_segments(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        entries = [entry(n, 3000, partition=n % 2) for n in range(50)]
        await append_each(wal, heard, entries)
        await wal.trim({tp(0): 1000, tp(1): 0})
        assert tp(1) in wal.oldest()
        assert await wal.read(2) == entries[1].body
        await wal.close()
        found = [plain for _, plain in await replayed(open_wal())]
        assert [e for e in found if e.tp == tp(1)] == entries[1::2]

    run(scenario())


def test_a_partition_that_is_gone_holds_nothing_back(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        await append_each(wal, heard, [entry(n, 3000, partition=n % 2) for n in range(50)])
        await wal.trim({tp(1): 50})
        with pytest.raises(NotFound):
            await wal.read(1)
        await wal.close()

    run(scenario())


def test_close_makes_queued_entries_durable_even_if_nobody_waits(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        wal.append(entry(0, acks=0))
        await wal.close()
        assert heard.durable == 1
        with pytest.raises(Unavailable):
            wal.append(entry(1))
        assert await replayed(open_wal()) == [(1, entry(0, acks=0))]

    run(scenario())


def test_views_are_taken_as_bodies(open_wal: Open) -> None:
    async def scenario() -> None:
        wal = open_wal()
        heard = await started(wal)
        body = bytearray(b"head" + bytes(range(256)) * 200)
        wal.append(entry(0)._replace(body=memoryview(body)[4:]))
        await heard.until(1)
        await ticks()
        assert await wal.read(1) == bytes(range(256)) * 200
        await wal.close()

    run(scenario())
