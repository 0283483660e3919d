"""The sentences of `ports/objects.py`, run on every adapter.

A new adapter is one more entry in `ADAPTERS`; one whose content survives close also goes in
`DURABLE`. The faulty wrapper with its faults off must be indistinguishable from what it wraps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from streamhouse.model.errors import AlreadyExists, Corrupt, Invalid, NotFound
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.faulty import Faults, FaultyObjects
from streamhouse.objects.open import open_store
from streamhouse.ports.objects import ObjectStore

Close = Callable[[], Awaitable[None]]
Open = Callable[[Path], Awaitable[tuple[ObjectStore, Close]]]
Scenario = Callable[[ObjectStore], Awaitable[None]]
Run = Callable[[Scenario], None]


async def open_local(directory: Path) -> tuple[ObjectStore, Close]:
    store = await open_store(f"file://{directory}/objects")
    return store, store.close


async def open_memory(directory: Path) -> tuple[ObjectStore, Close]:
    store = await open_store("memory://")
    return store, store.close


async def open_faultless(directory: Path) -> tuple[ObjectStore, Close]:
    inner, close = await open_local(directory)
    return FaultyObjects(inner, Faults(Random(7), asyncio.sleep)), close


ADAPTERS: dict[str, Open] = {
    "local": open_local,
    "memory": open_memory,
    "faulty-off": open_faultless,
}
DURABLE = ("local", "faulty-off")


@pytest.fixture(params=sorted(ADAPTERS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return _runner(ADAPTERS[request.param], tmp_path)


@pytest.fixture(params=DURABLE)
def run_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Each call opens the same store anew and closes it."""
    return _runner(ADAPTERS[request.param], tmp_path)


def _runner(open_: Open, directory: Path) -> Run:
    async def once(scenario: Scenario) -> None:
        store, close = await open_(directory)
        try:
            await scenario(store)
        finally:
            await close()

    return lambda scenario: asyncio.run(once(scenario))


def key(text: str) -> ObjectKey:
    return ObjectKey(text)


async def keys_under(store: ObjectStore, prefix: str) -> list[str]:
    return [found async for found in store.list_keys(prefix)]


async def read_all(store: ObjectStore, name: str) -> bytes:
    return await store.get_range(key(name), 0, await store.size(key(name)))


def test_an_object_is_its_buffers_one_after_the_other(run: Run) -> None:
    """Goal: no buffer is lost, doubled or reordered, whatever its type, size or number."""
    many = [bytes([i % 251]) * (i % 7) for i in range(3_000)]  # more than one writev takes
    bodies: dict[str, Sequence[bytes | bytearray | memoryview]] = {
        "empty": [],
        "empty-buffers": [b"", b""],
        "mixed": [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]],
        "large": [b"\x01" * 3_000_000, b"\x02" * 2_000_000],
        "many": many,
    }

    async def scenario(store: ObjectStore) -> None:
        for name, body in bodies.items():
            await store.put_new(key(f"a/{name}"), body)
        for name, body in bodies.items():
            expected = b"".join(body)
            assert await store.size(key(f"a/{name}")) == len(expected)
            assert await read_all(store, f"a/{name}") == expected

    run(scenario)


def test_an_existing_key_is_refused_and_left_alone(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put_new(key("a/b"), [b"first"])
        for body in (b"second", b"first"):
            with pytest.raises(AlreadyExists):
                await store.put_new(key("a/b"), [body])
        assert await read_all(store, "a/b") == b"first"

    run(scenario)


def test_of_eight_writers_of_one_key_exactly_one_wins(run: Run) -> None:
    """Goal: create-only holds under a race, and the object is the winner's, whole."""

    async def scenario(store: ObjectStore) -> None:
        for attempt in range(10):
            name = key(f"race/{attempt}/object")
            bodies = [[bytes([writer]) * 50_000, bytes([writer])] for writer in range(8)]
            answers = await asyncio.gather(
                *(store.put_new(name, body) for body in bodies), return_exceptions=True
            )
            winners = [i for i, answer in enumerate(answers) if answer is None]
            assert len(winners) == 1
            assert all(isinstance(a, AlreadyExists) for a in answers if a is not None)
            assert await read_all(store, name) == b"".join(bodies[winners[0]])

    run(scenario)


def test_a_range_is_exact(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put_new(key("a"), [b"0123456789"])
        assert await store.get_range(key("a"), 0, 10) == b"0123456789"
        assert await store.get_range(key("a"), 3, 7) == b"3456"
        assert await store.get_range(key("a"), 9, 10) == b"9"
        assert await store.get_range(key("a"), 10, 10) == b""
        assert await store.get_range(key("a"), 0, 0) == b""

    run(scenario)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (9, 11), (10, 11), (50, 60), (11, 11)])
def test_a_read_beyond_the_end_is_corrupt_never_short(run: Run, start: int, stop: int) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put_new(key("a"), [b"0123456789"])
        with pytest.raises(Corrupt):
            await store.get_range(key("a"), start, stop)

    run(scenario)


@pytest.mark.parametrize(("start", "stop"), [(-1, 4), (5, 4)])
def test_a_range_that_is_none_is_invalid(run: Run, start: int, stop: int) -> None:
    async def scenario(store: ObjectStore) -> None:
        await store.put_new(key("a"), [b"0123456789"])
        with pytest.raises(Invalid):
            await store.get_range(key("a"), start, stop)

    run(scenario)


def test_what_was_never_put_is_not_found(run: Run) -> None:
    """Also a key that is only the beginning of another, and one below an object."""

    async def scenario(store: ObjectStore) -> None:
        await store.put_new(key("dir/object"), [b"x" * 10_000])
        for absent in ("nothing", "dir", "dir/other", "dir/object/below"):
            with pytest.raises(NotFound):
                await store.size(key(absent))
            for stop in (0, 1, 100_000):
                with pytest.raises(NotFound):
                    await store.get_range(key(absent), 0, stop)

    run(scenario)


def test_keys_are_listed_in_ascending_order(run: Run) -> None:
    """Goal: the order is that of the whole key, not of its parts ('-' sorts before '/')."""
    names = ["a/b/c", "a-b", "a/b-c", "a/b.d", "a0", "b", "a/b/", "z/y/x/w"]
    names = [name for name in names if not name.endswith("/")]

    async def scenario(store: ObjectStore) -> None:
        for name in names:
            await store.put_new(key(name), [b"x"])
        assert await keys_under(store, "") == sorted(names)

    run(scenario)


@pytest.mark.parametrize(
    "prefix",
    ["", "a", "a/", "a/1", "a/1/", "a/1/0", "a/1/0000", "a/11/", "b/", "none", "a/none/", "a/1/1x"],
)
def test_a_prefix_is_a_beginning_of_the_key(run: Run, prefix: str) -> None:
    names = ["a/1/0001", "a/1/0002", "a/1/1", "a/11/0001", "a/2/0001", "ab/1", "b/1"]

    async def scenario(store: ObjectStore) -> None:
        for name in names:
            await store.put_new(key(name), [b"x"])
        expected = sorted(name for name in names if name.startswith(prefix))
        assert await keys_under(store, prefix) == expected

    run(scenario)


def test_long_lists_are_complete(run: Run) -> None:
    """Goal: pages join without gap or repetition."""
    names = [f"t/{i % 3}/{i:06d}" for i in range(1_050)]

    async def scenario(store: ObjectStore) -> None:
        for at in range(0, len(names), 50):
            await asyncio.gather(*(store.put_new(key(n), [b"x"]) for n in names[at : at + 50]))
        assert await keys_under(store, "t/") == sorted(names)

    run(scenario)


def test_delete_is_idempotent_and_touches_nothing_else(run: Run) -> None:
    async def scenario(store: ObjectStore) -> None:
        for name in ("a/1", "a/2", "b/c/d"):
            await store.put_new(key(name), [b"x"])
        doomed = [key("a/1"), key("b/c/d"), key("never/was")]
        assert await store.delete(doomed) == frozenset(doomed)
        assert await keys_under(store, "") == ["a/2"]
        assert await store.delete(doomed) == frozenset(doomed)
        assert await store.delete([]) == frozenset()
        assert await read_all(store, "a/2") == b"x"
        with pytest.raises(NotFound):
            await store.size(key("a/1"))

    run(scenario)


def test_put_and_delete_in_one_directory_may_race(run: Run) -> None:
    """Goal: removing what became empty never fails or hides a put next to it."""

    async def scenario(store: ObjectStore) -> None:
        async def churn(writer: int) -> None:
            for i in range(25):
                name = key(f"deep/er/{writer}-{i}")
                await store.put_new(name, [b"x"])
                assert await store.size(name) == 1
                assert await store.delete([name]) == frozenset([name])

        await asyncio.gather(*(churn(writer) for writer in range(4)))
        assert await keys_under(store, "") == []

    run(scenario)


@pytest.mark.parametrize(
    "bad",
    ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\0b",
     ".tmp/a", ".tmp", "x" * 256, "/".join(["x" * 200] * 6)],
)  # fmt: skip
def test_what_is_no_key_is_invalid_everywhere(run: Run, bad: str) -> None:
    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(Invalid):
            await store.put_new(key(bad), [b"x"])
        with pytest.raises(Invalid):
            await store.get_range(key(bad), 0, 1)
        with pytest.raises(Invalid):
            await store.size(key(bad))
        with pytest.raises(Invalid):
            await store.delete([key(bad)])
        assert await keys_under(store, "") == []

    run(scenario)


@pytest.mark.parametrize("prefix", ["../", "a/../", "/", "a//b"])
def test_a_prefix_cannot_leave_the_store(run: Run, prefix: str) -> None:
    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(Invalid):
            await keys_under(store, prefix)

    run(scenario)


def test_objects_survive_close_and_reopen(run_durable: Run) -> None:
    async def fill(store: ObjectStore) -> None:
        await store.put_new(key("a/b/1"), [b"one"])
        await store.put_new(key("a/b/2"), [b"two"])
        await store.delete([key("a/b/2")])

    async def look(store: ObjectStore) -> None:
        assert await keys_under(store, "") == ["a/b/1"]
        assert await read_all(store, "a/b/1") == b"one"
        with pytest.raises(AlreadyExists):
            await store.put_new(key("a/b/1"), [b"other"])

    run_durable(fill)
    run_durable(look)
