"""Which strings are object keys. The rule is the same for every adapter.

A key is a relative path of non-empty parts joined by '/'. No part is '.' or '..', and the first is
not the directory where the local adapter keeps unfinished files. So a key can never name anything
outside its store, and a bucket can be copied to a directory and back.
"""

from streamhouse.model.errors import Invalid
from streamhouse.model.ids import ObjectKey

KEY_BYTES_MAX = 1_024  # S3's bound
KEY_PART_BYTES_MAX = 255  # a file name's bound
UNFINISHED_DIR = ".tmp"


def check_key(key: ObjectKey) -> None:
    """Raise Invalid unless `key` may name an object."""
    if len(key.encode()) > KEY_BYTES_MAX:
        raise Invalid(f"object key of more than {KEY_BYTES_MAX} bytes: {key[:64]!r}...")
    parts = key.split("/")
    if parts[0] == UNFINISHED_DIR:
        raise Invalid(f"{key!r} is not an object key: {UNFINISHED_DIR!r} is reserved")
    for part in parts:
        _check_part(key, part)


def check_prefix(prefix: str) -> None:
    """Raise Invalid if no key can begin with `prefix` because of its complete parts."""
    if prefix:
        for part in prefix.split("/")[:-1]:
            _check_part(prefix, part)


def check_range(start: int, stop: int) -> None:
    """Raise Invalid unless [start, stop) is a byte range."""
    if not 0 <= start <= stop:
        raise Invalid(f"[{start}, {stop}) is not a byte range")


def _check_part(key: str, part: str) -> None:
    if not part:
        raise Invalid(f"{key!r} is not an object key: it begins or ends with '/' or has '//'")
    if part in (".", "..") or "\0" in part:
        raise Invalid(f"{key!r} is not an object key: a part is '.', '..' or holds a zero byte")
    if len(part.encode()) > KEY_PART_BYTES_MAX:
        raise Invalid(f"{key!r} is not an object key: a part exceeds {KEY_PART_BYTES_MAX} bytes")
