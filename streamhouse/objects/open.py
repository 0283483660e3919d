"""From OBJECT_STORE_URL to a store; the one list of schemes."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamhouse.model.errors import Invalid
from streamhouse.objects.local import LocalObjects
from streamhouse.objects.memory import MemoryObjects
from streamhouse.ports.objects import OwnedObjectStore


async def open_store(url: str) -> OwnedObjectStore:
    """Open the store that `url` names.

    Raises Invalid for a URL that names none, StartRefused if the directory cannot be used.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "file":
            return await LocalObjects.open(_directory(url, parts.netloc, parts.path))
        case "memory":
            return MemoryObjects()
        case "s3":
            raise Invalid(
                f"OBJECT_STORE_URL {url!r}: this version does not store objects in S3 yet; "
                "use file:///path/to/directory"
            )
        case _:
            raise Invalid(
                f"OBJECT_STORE_URL {url!r} names no store; "
                "use file:///path/to/directory (or memory:// for tests)"
            )


def _directory(url: str, host: str, path: str) -> Path:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise Invalid(
            f"OBJECT_STORE_URL {url!r} needs three slashes and an absolute path: file:///var/objects"
        )
    return Path(unquote(path))
