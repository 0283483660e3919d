"""OBJECT_STORE_URL: what each scheme gives, and what a wrong one says."""

import asyncio
from pathlib import Path

import pytest

from streamhouse.model.errors import Invalid
from streamhouse.model.ids import ObjectKey
from streamhouse.objects.open import open_store


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_url_names_a_directory(tmp_path: Path, host: str) -> None:
    async def scenario() -> None:
        store = await open_store(f"file://{host}{tmp_path}/with%20space/new")
        await store.put_new(ObjectKey("a"), [b"x"])
        await store.close()

    asyncio.run(scenario())
    assert (tmp_path / "with space" / "new" / "a").read_bytes() == b"x"


def test_a_memory_url_names_a_store_of_its_own() -> None:
    async def scenario() -> None:
        first, second = await open_store("memory://"), await open_store("memory://")
        await first.put_new(ObjectKey("a"), [b"x"])
        assert [k async for k in second.list_keys("")] == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://bucket/prefix", "not store objects in S3 yet"),
        ("", "names no store"),
        ("data/objects", "names no store"),
        ("gs://bucket", "names no store"),
        ("file://relative/path", "three slashes"),
        ("file:relative", "three slashes"),
        ("file://", "three slashes"),
    ],
)
def test_another_url_says_what_to_write_instead(url: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        asyncio.run(open_store(url))
    assert "file:///" in str(refused.value)
