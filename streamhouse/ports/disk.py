"""Files of one directory, as the write-ahead log needs them."""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Disk(Protocol):
    """Flat file names in one directory. Calls on one file do not overlap unless said.

    Raises OSError as the operating system does; the caller decides what it means.
    """

    async def list_files(self) -> list[str]:
        """Names in ascending order."""

    async def size(self, name: str) -> int:
        """Length of the file in bytes."""

    async def create_zeroed(self, name: str, size: int) -> None:
        """Make a file of `size` zero bytes, really allocated, synced with its directory.

        On failure (no space) nothing of the file remains.
        """

    async def write_synced(self, name: str, at: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one after the other at `at`, then fdatasync. Never extends the file."""

    async def read(self, name: str, at: int, length: int) -> bytes:
        """Up to `length` bytes at `at`; shorter only at the end of the file. May overlap writes."""

    async def delete(self, name: str) -> None:
        """Remove the file and sync the directory."""
