"""The Disk port on a real directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.wal.os_disk import IOV_MAX, OsDisk
from tests.unit.wal.wal_world import run


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[OsDisk]:
    made = OsDisk(tmp_path / "a" / "wal")
    yield made
    made.close()


def test_a_created_file_is_zero_and_really_allocated(disk: OsDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        await disk.create_zeroed("one", 9 * 1024 * 1024 + 512)
        assert await disk.size("one") == 9 * 1024 * 1024 + 512
        assert not any(await disk.read("one", 8 * 1024 * 1024, 2 * 1024 * 1024))
        assert await disk.list_files() == ["one"]
        with pytest.raises(FileExistsError):
            await disk.create_zeroed("one", 512)
        assert await disk.size("one") == 9 * 1024 * 1024 + 512

    run(scenario())
    stat = os.stat(tmp_path / "a" / "wal" / "one")
    assert stat.st_blocks * 512 >= stat.st_size


def test_a_file_that_cannot_be_made_leaves_nothing(disk: OsDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match=r"space|large"):
            await disk.create_zeroed("huge", 1 << 55)

    run(scenario())
    assert list((tmp_path / "a" / "wal").iterdir()) == []


def test_what_a_crash_left_half_made_is_removed_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "wal-1.tmp").write_bytes(b"half")
    (tmp_path / "other").write_bytes(b"kept")
    disk = OsDisk(tmp_path)
    assert run(disk.list_files()) == ["other"]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    disk.close()


def test_more_buffers_than_one_system_call_takes_are_all_written(disk: OsDisk) -> None:
    async def scenario() -> None:
        await disk.create_zeroed("one", 64 * 1024)
        buffers = [bytes([n % 251]) * (n % 7) for n in range(3 * IOV_MAX)]
        await disk.write_synced("one", 5, buffers)
        whole = b"".join(buffers)
        assert await disk.read("one", 5, len(whole)) == whole
        assert await disk.read("one", 64 * 1024 - 10, 100) == bytes(10)

    run(scenario())


def test_a_write_never_extends_the_file(disk: OsDisk) -> None:
    async def scenario() -> None:
        await disk.create_zeroed("one", 1024)
        with pytest.raises(OSError, match="extend"):
            await disk.write_synced("one", 1000, [b"x" * 25])
        assert await disk.size("one") == 1024

    run(scenario())


def test_an_error_of_the_system_reaches_the_caller(disk: OsDisk) -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            await disk.write_synced("absent", 0, [b"x"])
        with pytest.raises(FileNotFoundError):
            await disk.read("absent", 0, 1)
        await disk.create_zeroed("one", 1024)
        await disk.delete("one")
        with pytest.raises(FileNotFoundError):
            await disk.read("one", 0, 1)

    run(scenario())
