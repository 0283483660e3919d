"""Replay after crashes and damage: an exact prefix or a refusal, never a wrong entry."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from streamhouse.model.errors import StartRefused
from streamhouse.ports.wal import WalEntry
from streamhouse.wal.format import (
    GROUP_HEADER_BYTES,
    HEADER_BLOCK_BYTES,
    HEADER_COPY_AT,
    RECORD_HEADER_BYTES,
    SECTOR_BYTES,
    align,
    decode_file_header,
    encode_file_header,
)
from streamhouse.wal.recovery import PIECE_BYTES, WalOptions, file_name
from tests.sim.disk import SimDisk
from tests.unit.wal.wal_world import (
    SMALL,
    append_each,
    entry,
    file_wal,
    replayed,
    run,
    sim_disk,
    started,
    tp,
)

TINY = WalOptions(file_bytes=16 * 1024, bytes_max=8 * 16 * 1024, group_bytes_max=8 * 1024)
GROUPS = [[200], [40, 300, 10], [700], [90, 90]]  # body sizes, group by group

Numbered = list[tuple[int, WalEntry]]


async def _write_groups(disk: SimDisk) -> Numbered:
    """A WAL of one file with the groups of GROUPS."""
    wal = file_wal(disk, TINY)
    heard = await started(wal)
    entries: Numbered = []
    for sizes in GROUPS:
        for size in sizes:
            one = entry(len(entries), size)
            entries.append((wal.append(one), one))
        await heard.until(len(entries))
    await wal.close()
    assert len(heard.calls) == len(GROUPS)
    return entries


def _record_ends() -> list[int]:
    """Where each record of GROUPS ends in the file."""
    ends = []
    at = HEADER_BLOCK_BYTES
    for sizes in GROUPS:
        at = align(at) + GROUP_HEADER_BYTES
        for size in sizes:
            at += RECORD_HEADER_BYTES + size
            ends.append(at)
    return ends


def _flip(disk: SimDisk, name: str, at: int) -> None:
    disk.poke(name, at, bytes([disk.peek(name)[at] ^ 0x40]))


async def _outcome(disk: SimDisk, options: WalOptions = TINY) -> Numbered | None:
    """What is replayed; None when the start is refused."""
    try:
        return await replayed(file_wal(disk, options))
    except StartRefused:
        return None


def test_a_torn_last_record_is_dropped_and_earlier_ones_are_kept() -> None:
    """SH-102: whatever the cut position, exactly the whole records before it remain."""

    async def scenario() -> None:
        disk = sim_disk()
        entries = await _write_groups(disk)
        ends = _record_ends()
        for cut in range(HEADER_BLOCK_BYTES, ends[-1] + 1):
            torn = disk.copy()
            torn.poke(file_name(1), cut, bytes(TINY.file_bytes - cut))
            whole = [one for one, end in zip(entries, ends, strict=True) if end <= cut]
            assert await _outcome(torn) == whole, f"cut at {cut}"

    run(scenario())


def test_after_a_cut_the_log_goes_on_and_the_cut_entries_never_return() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        entries = await _write_groups(disk)
        for cut in range(HEADER_BLOCK_BYTES, _record_ends()[-1], 97):
            torn = disk.copy()
            torn.poke(file_name(1), cut, bytes(20))
            torn.poke(file_name(1), align(cut + 20), bytes(TINY.file_bytes - align(cut + 20)))
            wal = file_wal(torn, TINY)
            kept = await replayed(wal)
            heard = await started(wal)
            assert wal.append(entry(77)) == len(kept) + 1
            await heard.until(len(kept) + 1)
            torn.crash()
            await wal.close()
            assert kept == entries[: len(kept)]
            assert await _outcome(torn) == [*kept, (len(kept) + 1, entry(77))]

    run(scenario())


def test_every_flipped_byte_gives_an_exact_prefix_or_a_refusal() -> None:
    """Damage before a witness is refused; in the last group it is a torn tail; pads are free."""

    async def scenario() -> None:
        disk = sim_disk()
        entries = await _write_groups(disk)
        ends = _record_ends()
        last_group = align(ends[-3])
        refused = 0
        for at in range(HEADER_BLOCK_BYTES, align(ends[-1])):
            damaged = disk.copy()
            _flip(damaged, file_name(1), at)
            found = await _outcome(damaged)
            if at >= last_group:
                assert found is not None
                assert found == entries[: len(found)], f"byte {at}"
                assert len(found) >= len(entries) - 2
            elif found is None:
                refused += 1
            else:
                assert found == entries, f"byte {at}: damage before a witness went unnoticed"
        assert refused == sum(sum(sizes) for sizes in GROUPS[:-1]) + (
            5 * RECORD_HEADER_BYTES + 3 * GROUP_HEADER_BYTES
        )

    run(scenario())


def test_every_flipped_byte_of_a_file_header_is_harmless() -> None:
    """The header has a copy: one damaged byte loses neither entries nor the WAL's identity."""

    async def scenario() -> None:
        disk = sim_disk()
        entries = await _write_groups(disk)
        for at in range(HEADER_BLOCK_BYTES):
            damaged = disk.copy()
            _flip(damaged, file_name(1), at)
            assert await _outcome(damaged) == entries, f"byte {at}"

    run(scenario())


async def _three_files(disk: SimDisk) -> Numbered:
    wal = file_wal(disk, TINY)
    heard = await started(wal)
    entries = [entry(n, 1900) for n in range(14)]
    sequences = await append_each(wal, heard, entries)
    await wal.close()
    return list(zip(sequences, entries, strict=True))


async def _live_names(disk: SimDisk) -> list[str]:
    live: dict[int, str] = {}
    for name in await disk.list_files():
        header = decode_file_header(disk.peek(name)[:HEADER_BLOCK_BYTES])
        if header is not None:
            live[header.generation] = name
    return [live[generation] for generation in sorted(live)]


def test_damage_in_an_older_file_is_refused_with_place_and_advice() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        entries = await _three_files(disk)
        names = await _live_names(disk)
        assert len(names) == 3
        for name in names[:2]:
            for at in range(HEADER_BLOCK_BYTES, TINY.file_bytes, 61):
                damaged = disk.copy()
                _flip(damaged, name, at)
                assert await _outcome(damaged) in (None, entries)
        _flip(disk, names[1], HEADER_BLOCK_BYTES + 300)
        with pytest.raises(StartRefused, match=rf"{names[1]}.*byte 4\d\d\d.*--accept-wal-loss"):
            await replayed(file_wal(disk, TINY))

    run(scenario())


def test_a_missing_or_shortened_or_headless_live_file_is_refused() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        await _three_files(disk)
        names = await _live_names(disk)
        for name in names[:2]:
            lost = disk.copy()
            lost.lose_file(name)
            assert await _outcome(lost) is None
        for name in names:
            short = disk.copy()
            short.shorten(name, TINY.file_bytes - SECTOR_BYTES)
            assert await _outcome(short) is None
            headless = disk.copy()
            headless.poke(name, 0, b"x" * HEADER_BLOCK_BYTES)
            assert await _outcome(headless) is None
            headless.poke(name, 0, bytes(HEADER_BLOCK_BYTES))
            assert await _outcome(headless) is None

    run(scenario())


def test_a_wal_whose_only_header_is_destroyed_is_not_taken_for_a_new_one() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        await _write_groups(disk)
        disk.poke(file_name(1), 0, bytes(HEADER_BLOCK_BYTES))
        assert await _outcome(disk) is None

    run(scenario())


def test_a_torn_header_of_a_file_without_data_is_harmless() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        entries = await _three_files(disk)
        await disk.create_zeroed(file_name(90), TINY.file_bytes)
        disk.poke(file_name(90), 0, b"torn" * 100)
        await disk.create_zeroed(file_name(91), 1024)  # left by a crash while it was made
        wal = file_wal(disk, TINY)
        assert await replayed(wal) == entries
        await started(wal)
        await wal.close()
        assert file_name(91) not in await disk.list_files()
        assert await _outcome(disk) == entries

    run(scenario())


def test_accepted_losses_keep_what_is_readable_and_are_reported() -> None:
    async def scenario() -> None:
        accepting = replace(TINY, accept_loss=True)
        disk = sim_disk()
        entries = await _write_groups(disk)
        _flip(disk, file_name(1), align(_record_ends()[0]) + GROUP_HEADER_BYTES + 5)
        assert await _outcome(disk) is None

        wal = file_wal(disk, accepting)
        kept = [entries[0], *entries[4:]]
        assert await replayed(wal) == kept
        assert [(loss.first_sequence, loss.last_sequence) for loss in wal.losses] == [(2, 4)]
        assert wal.losses[0].file == file_name(1)
        heard = await started(wal)
        assert wal.append(entry(50)) == len(entries) + 1
        await heard.until(len(entries) + 1)
        assert await wal.read(5) == entries[4][1].body
        await wal.close()

        # What was accepted once is not asked again; new damage is.
        again = file_wal(disk, TINY)
        assert await replayed(again) == [*kept, (len(entries) + 1, entry(50))]
        assert len(again.losses) == 1
        heard = await started(again)
        await append_each(again, heard, [entry(51), entry(52)])
        await again.close()
        newest = (await _live_names(disk))[-1]
        _flip(disk, newest, HEADER_BLOCK_BYTES + GROUP_HEADER_BYTES + 7)
        assert await _outcome(disk) is None

    run(scenario())


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_file_can_be_accepted(lost: int) -> None:
    async def scenario() -> None:
        disk = sim_disk()
        entries = await _three_files(disk)
        names = await _live_names(disk)
        disk.poke(names[lost], 0, b"x" * HEADER_BLOCK_BYTES)
        wal = file_wal(disk, replace(TINY, accept_loss=True))
        found = await replayed(wal)
        assert wal.losses
        assert found == [one for one in entries if one in found]
        assert len(entries) - 6 <= len(found) < len(entries)
        heard = await started(wal)
        assert wal.append(entry(60)) == len(entries) + 1
        await heard.until(len(entries) + 1)
        await wal.close()
        assert await _outcome(disk) == [*found, (len(entries) + 1, entry(60))]

    run(scenario())


def test_a_newer_format_is_refused_by_name() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        await _write_groups(disk)
        block = bytearray(disk.peek(file_name(1))[:HEADER_BLOCK_BYTES])
        header = decode_file_header(bytes(block))
        assert header is not None
        struct.pack_into("<I", block, 8, 2)
        _stamp_checksum(block)
        disk.poke(file_name(1), 0, bytes(block[:SECTOR_BYTES]))
        with pytest.raises(StartRefused, match="newer version"):
            await replayed(file_wal(disk, TINY))

    run(scenario())


def _stamp_checksum(block: bytearray) -> None:
    struct.pack_into("<I", block, SECTOR_BYTES - 4, crc32c(bytes(block[: SECTOR_BYTES - 4])))


def test_files_of_another_wal_are_refused() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        await _write_groups(disk)
        header = decode_file_header(disk.peek(file_name(1))[:HEADER_BLOCK_BYTES])
        assert header is not None
        await disk.create_zeroed(file_name(9), TINY.file_bytes)
        foreign = replace(header, wal_id="ab" * 16, generation=99)
        disk.poke(file_name(9), 0, encode_file_header(foreign))
        with pytest.raises(StartRefused, match="different WALs"):
            await replayed(file_wal(disk, TINY))
        copied = replace(header, previous=0)
        disk.poke(file_name(9), 0, encode_file_header(copied))
        with pytest.raises(StartRefused, match="both claim generation"):
            await replayed(file_wal(disk, TINY))

    run(scenario())


def test_stale_records_of_a_reused_file_never_replay() -> None:
    """Equal sizes make old and new records align exactly; the generation tells them apart."""

    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        appended = 0
        for _ in range(6):  # several rounds through all files
            for _ in range(60):
                appended += 1
                wal.append(entry(appended, 2000))
                await heard.until(appended)
            await wal.trim({tp(0): appended})
        assert wal.files_count <= SMALL.files_max
        disk.kill()
        await wal.close()
        found = await replayed(file_wal(disk, SMALL))
        first = found[0][0]
        assert found == [(n, entry(n, 2000)) for n in range(first, appended + 1)]
        assert first > appended - 60

    run(scenario())


class _PowerFails(Exception):
    pass


def test_a_crash_at_any_step_of_recovery_loses_nothing() -> None:
    """Invariant 15: recovery is idempotent; the same entries whatever step it died at."""

    async def scenario(seed: int, large: bool) -> int:
        disk = sim_disk(seed)
        options = replace(TINY, group_bytes_max=256 if large else 8192)
        entries = await (_three_files(disk) if seed % 2 else _write_groups(disk))
        step = 0
        while True:
            left = step

            async def fail_at(_operation: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise _PowerFails

            disk.faults.sleep = fail_at
            wal = file_wal(disk, options)
            try:
                assert await replayed(wal) == entries
                await started(wal)
            except _PowerFails:
                disk.crash()
                step += 1
                continue
            disk.faults.sleep = None
            await wal.close()
            assert await _outcome(disk, options) == entries
            assert len(await disk.list_files()) <= 6
            return step

    for seed in range(8):
        assert run(scenario(seed, large=seed % 4 < 2)) > 5


def test_restarts_do_not_pile_up_files() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        for life in range(12):
            wal = file_wal(disk, SMALL)
            assert len(await replayed(wal)) == life
            heard = await started(wal)
            await heard.until(wal.append(entry(life)))
            disk.kill()
            await wal.close()
        assert len(await disk.list_files()) <= 3

    run(scenario())


def test_what_was_replayed_is_durable_once_started() -> None:
    """After kill -9 the page cache may show what the disk never got; served means synced."""

    async def scenario(seed: int) -> None:
        disk = sim_disk(seed)
        wal = file_wal(disk)
        heard = await started(wal)
        await append_each(wal, heard, [entry(n) for n in range(5)])
        disk.faults.write_error = OSError(5, "fdatasync failed")
        wal.append(entry(5))
        await heard.until(6)
        assert heard.durable == 5
        disk.kill()
        disk.faults.write_error = None
        again = file_wal(disk)
        shown = await replayed(again)
        assert len(shown) == 6
        await started(again)
        disk.crash()
        await again.close()
        await wal.close()
        assert await _outcome(disk, SMALL) == shown

    for seed in range(10):
        run(scenario(seed))


def test_a_wal_with_smaller_files_than_before_still_opens() -> None:
    async def scenario() -> None:
        disk = sim_disk()
        wal = file_wal(disk, SMALL)
        heard = await started(wal)
        await heard.until(wal.append(entry(0, 40_000)))
        await wal.close()
        smaller = file_wal(disk, TINY)
        assert await replayed(smaller) == [(1, entry(0, 40_000))]
        heard = await started(smaller)
        await append_each(smaller, heard, [entry(n, 2000) for n in range(1, 20)])
        await smaller.trim({tp(0): 20})
        await smaller.close()
        found = await replayed(file_wal(disk, TINY))
        assert found[-1] == (20, entry(19, 2000))

    run(scenario())


def test_entries_larger_than_a_read_piece_are_replayed() -> None:
    async def scenario() -> None:
        options = WalOptions(file_bytes=4 * PIECE_BYTES, bytes_max=8 * PIECE_BYTES)
        disk = sim_disk()
        wal = file_wal(disk, options)
        heard = await started(wal)
        entries = [entry(0, 10), entry(1, PIECE_BYTES + 1), entry(2, 2 * PIECE_BYTES), entry(3, 10)]
        await append_each(wal, heard, entries)
        await wal.close()
        found = await replayed(file_wal(disk, options))
        assert found == list(enumerate(entries, start=1))

    run(scenario())


def test_the_header_copy_lies_in_a_sector_of_its_own() -> None:
    assert HEADER_COPY_AT % SECTOR_BYTES == 0
    assert HEADER_COPY_AT >= SECTOR_BYTES
