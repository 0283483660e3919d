"""Errors, told apart by what the caller does next.

A class exists only where some caller acts on it. Kafka error codes and HTTP statuses are chosen at
the doors, never here.
"""

from enum import Enum
from typing import ClassVar


class Retry(Enum):
    NOW = "the same request may succeed at once or a little later"
    AFTER_REFRESH = "reload metadata first"
    CHECK_FIRST = "it may have happened: look before repeating"
    NEVER = "the caller must change the request"


class StreamhouseError(Exception):
    """Root of everything we raise on purpose."""

    retry: ClassVar[Retry] = Retry.NEVER


class Invalid(StreamhouseError):
    """The request itself is wrong; repeating it cannot help."""


class DecodeError(Invalid):
    """Bytes that do not follow their format."""


class NotFound(StreamhouseError):
    """The named thing does not exist."""


class AlreadyExists(StreamhouseError):
    """The name or key is taken."""


class Unavailable(StreamhouseError):
    """Refused or not reached; nothing was written."""

    retry = Retry.NOW


class Fenced(StreamhouseError):
    """A newer epoch owns this partition: stop, write nothing more."""

    retry = Retry.AFTER_REFRESH


class OutcomeUnknown(StreamhouseError):
    """The store did not answer. The write may exist."""

    retry = Retry.CHECK_FIRST


class Corrupt(StreamhouseError):
    """Stored bytes fail their checksum or contradict each other. A person must act."""


class StartRefused(StreamhouseError):
    """The process must not start on this data; the message says what to do."""


class OffsetOutOfRange(StreamhouseError):
    """A read below the log start or above the high watermark."""

    def __init__(self, offset: int, log_start: int, high_watermark: int) -> None:
        super().__init__(
            f"offset {offset} is outside [{log_start}, {high_watermark}]; "
            f"read from {log_start} or later"
        )
        self.offset = offset
        self.log_start = log_start
        self.high_watermark = high_watermark
