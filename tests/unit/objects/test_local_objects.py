"""What only the local directory can get wrong: leftovers, full disks, shared directories."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.model.errors import Invalid, StartRefused, Unavailable
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.local import LocalObjects

WRITER = """
import asyncio, os, sys
from pathlib import Path
from streamhouse.objects.local import LocalObjects

async def main():
    store = await LocalObjects.open(Path(sys.argv[1]))
    for i in range(1000):
        await store.put_new(f"a/{i:04d}", [b"x" * 100_000])
        print(i, flush=True)

asyncio.run(main())
"""


def files_in(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """Writes beyond this size fail with EFBIG, as on a disk that has no more room."""
    limit = 64 * 1024
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_failed_write_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, file_size_limit: int
) -> None:
    """Goal: no room means Unavailable, no half object, no unfinished file; smaller ones go on."""

    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path / "objects")
        too_large = [b"x" * file_size_limit, b"y"]
        with pytest.raises(Unavailable, match="File too large"):
            await store.put_new(ObjectKey("a/b"), too_large)
        assert files_in(tmp_path) == []
        await store.put_new(ObjectKey("a/b"), [b"x"])
        assert files_in(tmp_path) == ["objects/a/b"]
        await store.close()

    asyncio.run(scenario())


def test_unfinished_files_of_a_crash_are_removed_at_open(tmp_path: Path) -> None:
    unfinished = tmp_path / ".tmp"
    unfinished.mkdir()
    (unfinished / f"{os.getpid()}-0").write_bytes(b"half an obj")
    (unfinished / "4711-3").write_bytes(b"")

    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        assert files_in(tmp_path) == []
        await store.put_new(ObjectKey("a"), [b"x"])
        assert [k async for k in store.list_keys("")] == ["a"]
        await store.close()

    asyncio.run(scenario())


def test_an_unfinished_file_is_no_object(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        (tmp_path / ".tmp" / "9-9").write_bytes(b"half")
        assert [k async for k in store.list_keys("")] == []
        await store.close()

    asyncio.run(scenario())


def test_a_put_survives_another_process_that_opens_the_store(tmp_path: Path) -> None:
    """Goal: our own name for an unfinished file, taken by a stranger, is no AlreadyExists."""

    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        for number in range(1, 4):
            (tmp_path / ".tmp" / f"{os.getpid()}-{number}").write_bytes(b"of another container")
        await store.put_new(ObjectKey("a"), [b"mine"])
        assert await store.get_range(ObjectKey("a"), 0, 4) == b"mine"
        await store.close()

    asyncio.run(scenario())


def test_killed_writer_leaves_only_whole_objects(tmp_path: Path) -> None:
    """Goal: kill -9 at any moment; every acknowledged object is there, none is partial."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert writer.stdout is not None
    with writer.stdout as answers:
        acknowledged = [answers.readline() for _ in range(20)]
        writer.kill()
        writer.wait()
        acknowledged += answers.readlines()

    async def look() -> None:
        store = await LocalObjects.open(tmp_path)
        keys = [k async for k in store.list_keys("")]
        assert len(keys) >= len(acknowledged) >= 20
        assert [await store.size(k) for k in keys] == [100_000] * len(keys)
        await store.close()

    asyncio.run(look())


def test_empty_directories_go_and_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        await store.put_new(ObjectKey("a/b/c"), [b"x"])
        await store.put_new(ObjectKey("a/d"), [b"x"])
        await store.delete([ObjectKey("a/b/c")])
        assert not (tmp_path / "a" / "b").exists()
        assert (tmp_path / "a" / "d").exists()
        await store.put_new(ObjectKey("a/b/c"), [b"again"])
        assert await store.size(ObjectKey("a/b/c")) == 5
        await store.delete([ObjectKey("a/b/c"), ObjectKey("a/d")])
        assert os.listdir(tmp_path) == [".tmp"]
        await store.close()

    asyncio.run(scenario())


def test_a_directory_removed_behind_our_back_is_made_again(tmp_path: Path) -> None:
    """Goal: another process cleans up too; what we remember of directories is only a hint."""

    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        await store.put_new(ObjectKey("a/b/1"), [b"x"])
        (tmp_path / "a" / "b" / "1").unlink()
        (tmp_path / "a" / "b").rmdir()
        (tmp_path / "a").rmdir()
        await store.put_new(ObjectKey("a/b/2"), [b"x"])
        assert files_in(tmp_path) == ["a/b/2"]
        await store.close()

    asyncio.run(scenario())


def test_a_key_below_or_above_an_object_is_refused_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        await store.put_new(ObjectKey("a/b"), [b"x"])
        for bad in ("a", "a/b/c", "a/b/c/d"):
            with pytest.raises(Invalid):
                await store.put_new(ObjectKey(bad), [b"y"])
        assert files_in(tmp_path) == ["a/b"]
        await store.close()

    asyncio.run(scenario())


def test_a_file_in_place_of_the_directory_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(b"")
    with pytest.raises(StartRefused, match="objects cannot be used"):
        asyncio.run(LocalObjects.open(tmp_path / "objects"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_not_writable_refuses_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartRefused, match=os.strerror(errno.EACCES)):
        asyncio.run(LocalObjects.open(tmp_path))


def test_no_file_stays_open(tmp_path: Path) -> None:
    """Goal: a server runs for months; neither success nor failure may leak a descriptor."""

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def scenario() -> None:
        store = await LocalObjects.open(tmp_path)
        await store.put_new(ObjectKey("a"), [b"x"])
        before = open_files()
        for i in range(20):
            await store.put_new(ObjectKey(f"b/{i}"), [b"x"])
            await store.get_range(ObjectKey("a"), 0, 1)
            for attempt in (
                store.put_new(ObjectKey("a"), [b"x"]),
                store.put_new(ObjectKey("a/b"), [b"x"]),
                store.get_range(ObjectKey("a"), 0, 2),
                store.get_range(ObjectKey("none"), 0, 2),
            ):
                await asyncio.gather(attempt, return_exceptions=True)
            assert len([k async for k in store.list_keys("")]) == i + 2
        assert open_files() == before
        await store.close()

    asyncio.run(scenario())
