"""The JSON documents that make a bucket readable alone: manifests, their pages, and topics.

Owns what they say and how they are checked; writes and reads nothing. A manifest names the live
segments of one partition. When there are many, all but the newest move to pages: immutable, named
by their content, and cut where a segment's key says so, so that a new manifest shares nearly all
its pages with the one before.

Invariant, checked before writing and after reading: the segments follow one another without gap or
overlap and cover [log_start, stable_end). A reader never skips records because of a manifest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from crc32c import crc32c

from streamhouse.model.errors import Corrupt
from streamhouse.model.ids import ObjectKey, TopicId, TopicPartition
from streamhouse.model.keys import partition_prefix
from streamhouse.model.partition import SegmentRef
from streamhouse.model.producers import AbortedTransaction
from streamhouse.segment.documents import Fields, decode_document, encode_document
from streamhouse.segment.layout import EPOCH_MAX, Buffer

INLINE_SEGMENTS_MAX = 1_000  # up to this many stand in the manifest itself
PAGE_SEGMENTS_MIN = 125
PAGE_SEGMENTS_MEAN = 500  # about; beyond the minimum
PAGE_SEGMENTS_MAX = 1_000

_MANIFEST = "streamhouse-manifest"
_PAGE = "streamhouse-manifest-page"
_TOPIC = "streamhouse-topic"
_DELETED = "streamhouse-topic-deleted"
_TIMESTAMP_MIN = -(2**63)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The live segments of a partition as of `version`; readers stay in [log_start, stable_end)."""

    tp: TopicPartition
    version: int
    epoch: int
    log_start: int
    stable_end: int  # last stable offset, at most the end of the last segment
    segments: tuple[SegmentRef, ...]
    aborted: tuple[AbortedTransaction, ...]
    written_ms: int


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page that a manifest names: segments [base, end) of the log."""

    key: ObjectKey
    base: int
    end: int
    segment_count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """A manifest as read: `newest` has only the segments after the pages. See `join_pages`."""

    newest: Manifest
    pages: tuple[PageRef, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic_id: TopicId
    name: str
    partition_count: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    topic_id: TopicId
    name: str
    deleted_ms: int


def page_prefix(tp: TopicPartition) -> str:
    return f"{partition_prefix(tp)}manifest-pages/"


def encode_manifest(manifest: Manifest) -> tuple[bytes, list[tuple[ObjectKey, bytes]]]:
    """The manifest's body, and the pages (key, body) that must be stored before it.

    A page's key is derived from its content: a key stored once need not be stored again.
    Raises Corrupt if the segments do not cover what the manifest promises.
    """
    check_manifest(manifest)
    groups, inline = split_segments(manifest.segments)
    pages: list[tuple[ObjectKey, bytes]] = []
    refs: list[PageRef] = []
    for group in groups:
        base, end = group[0].base, group[-1].end
        aborted = [t for t in manifest.aborted if base <= t.offset_last < end]
        body = _encode_page(manifest.tp, group, aborted)
        digest = sha256(body).hexdigest()
        key = ObjectKey(f"{page_prefix(manifest.tp)}{base:020d}-{end:020d}-{digest[:16]}.json")
        pages.append((key, body))
        refs.append(PageRef(key, base, end, len(group), digest))
    return _encode_head(manifest, refs, inline), pages


def decode_manifest(body: Buffer) -> ManifestHead:
    """Raises Corrupt, DecodeError. Read the pages it names and `join_pages` them."""
    fields = decode_document(_MANIFEST, body)
    newest = Manifest(
        tp=_read_tp(fields),
        version=fields.integer("version"),
        epoch=fields.integer("epoch", high=EPOCH_MAX),
        log_start=fields.integer("log_start"),
        stable_end=fields.integer("stable_end"),
        segments=_read_segments(fields),
        aborted=_read_aborted(fields),
        written_ms=fields.integer("written_ms"),
    )
    pages = tuple(
        PageRef(
            key=ObjectKey(page.text("key")),
            base=page.integer("base"),
            end=page.integer("end"),
            segment_count=page.integer("segment_count"),
            sha256=page.text("sha256"),
        )
        for page in fields.objects("pages")
    )
    return ManifestHead(newest, pages)


def join_pages(head: ManifestHead, bodies: Mapping[ObjectKey, Buffer]) -> Manifest:
    """The whole manifest. Raises Corrupt if a page is missing or not the one that was named."""
    segments: list[SegmentRef] = []
    aborted: list[AbortedTransaction] = []
    for ref in head.pages:
        if ref.key not in bodies:
            raise Corrupt(f"manifest page {ref.key} is missing")
        page_segments, page_aborted = _decode_page(head.newest.tp, ref, bodies[ref.key])
        segments.extend(page_segments)
        aborted.extend(page_aborted)
    manifest = replace(
        head.newest,
        segments=(*segments, *head.newest.segments),
        aborted=tuple(sorted((*aborted, *head.newest.aborted), key=_by_marker)),
    )
    check_manifest(manifest)
    return manifest


def check_manifest(manifest: Manifest) -> None:
    """Raise Corrupt unless the segments tile a range that covers [log_start, stable_end)."""
    where = f"manifest {manifest.version} of {manifest.tp.topic_id}/{manifest.tp.partition}"
    for segment in manifest.segments:
        if not 0 <= segment.base < segment.end:
            raise Corrupt(f"{where}: segment {segment.key} has no offsets")
    for before, after in zip(manifest.segments, manifest.segments[1:], strict=False):
        if before.end != after.base:
            raise Corrupt(
                f"{where}: segments [{before.base}, {before.end}) and "
                f"[{after.base}, {after.end}) leave a gap or overlap"
            )
    if manifest.stable_end <= manifest.log_start:
        return
    base = manifest.segments[0].base if manifest.segments else manifest.stable_end
    end = manifest.segments[-1].end if manifest.segments else manifest.log_start
    if base > manifest.log_start or end < manifest.stable_end:
        raise Corrupt(
            f"{where}: segments do not cover [{manifest.log_start}, {manifest.stable_end})"
        )


def split_segments(
    segments: Sequence[SegmentRef],
) -> tuple[list[Sequence[SegmentRef]], Sequence[SegmentRef]]:
    """Groups for pages, and the rest that stays in the manifest.

    Where a group ends depends on the keys near its end, not on how many segments came before. So
    adding segments, dropping the oldest or merging some changes only the pages next to them.
    """
    groups: list[Sequence[SegmentRef]] = []
    if len(segments) <= INLINE_SEGMENTS_MAX:
        return groups, segments
    start = 0
    for number, segment in enumerate(segments, 1):
        count = number - start
        cut_here = crc32c(segment.key.encode()) % PAGE_SEGMENTS_MEAN == 0
        if count == PAGE_SEGMENTS_MAX or (count >= PAGE_SEGMENTS_MIN and cut_here):
            groups.append(segments[start:number])
            start = number
    return groups, segments[start:]


def encode_topic(topic: TopicDescription) -> bytes:
    return encode_document(
        _TOPIC,
        {
            "topic_id": str(topic.topic_id),
            "name": topic.name,
            "partition_count": topic.partition_count,
            "created_ms": topic.created_ms,
        },
    )


def decode_topic(body: Buffer) -> TopicDescription:
    """Raises Corrupt, DecodeError."""
    fields = decode_document(_TOPIC, body)
    return TopicDescription(
        topic_id=TopicId(fields.uuid("topic_id")),
        name=fields.text("name"),
        partition_count=fields.integer("partition_count", low=1),
        created_ms=fields.integer("created_ms"),
    )


def encode_deleted(deletion: TopicDeletion) -> bytes:
    return encode_document(
        _DELETED,
        {
            "topic_id": str(deletion.topic_id),
            "name": deletion.name,
            "deleted_ms": deletion.deleted_ms,
        },
    )


def decode_deleted(body: Buffer) -> TopicDeletion:
    """Raises Corrupt, DecodeError."""
    fields = decode_document(_DELETED, body)
    return TopicDeletion(
        topic_id=TopicId(fields.uuid("topic_id")),
        name=fields.text("name"),
        deleted_ms=fields.integer("deleted_ms"),
    )


def _encode_head(
    manifest: Manifest, pages: Sequence[PageRef], inline: Sequence[SegmentRef]
) -> bytes:
    paged = [(page.base, page.end) for page in pages]
    aborted = [
        t
        for t in manifest.aborted
        if not (paged and paged[0][0] <= t.offset_last < paged[-1][1])  # pages are contiguous
    ]
    return encode_document(
        _MANIFEST,
        {
            **_tp_fields(manifest.tp),
            "version": manifest.version,
            "epoch": manifest.epoch,
            "log_start": manifest.log_start,
            "stable_end": manifest.stable_end,
            "written_ms": manifest.written_ms,
            "pages": [
                {
                    "key": page.key,
                    "base": page.base,
                    "end": page.end,
                    "segment_count": page.segment_count,
                    "sha256": page.sha256,
                }
                for page in pages
            ],
            "segments": [_segment_fields(segment) for segment in inline],
            "aborted": [_aborted_fields(t) for t in sorted(aborted, key=_by_marker)],
        },
    )


def _encode_page(
    tp: TopicPartition, segments: Sequence[SegmentRef], aborted: Sequence[AbortedTransaction]
) -> bytes:
    return encode_document(
        _PAGE,
        {
            **_tp_fields(tp),
            "segments": [_segment_fields(segment) for segment in segments],
            "aborted": [_aborted_fields(t) for t in sorted(aborted, key=_by_marker)],
        },
    )


def _decode_page(
    tp: TopicPartition, ref: PageRef, body: Buffer
) -> tuple[tuple[SegmentRef, ...], tuple[AbortedTransaction, ...]]:
    if sha256(body).hexdigest() != ref.sha256:
        raise Corrupt(f"manifest page {ref.key} is not the one the manifest names")
    fields = decode_document(_PAGE, body)
    segments = _read_segments(fields)
    found = (_read_tp(fields), len(segments))
    if found != (tp, ref.segment_count) or not segments:
        raise Corrupt(
            f"manifest page {ref.key} holds {found}, expected {ref.segment_count} of {tp}"
        )
    if (segments[0].base, segments[-1].end) != (ref.base, ref.end):
        raise Corrupt(f"manifest page {ref.key} does not cover [{ref.base}, {ref.end})")
    return segments, _read_aborted(fields)


def _tp_fields(tp: TopicPartition) -> dict[str, object]:
    return {"topic_id": str(tp.topic_id), "partition": tp.partition}


def _read_tp(fields: Fields) -> TopicPartition:
    return TopicPartition(TopicId(fields.uuid("topic_id")), fields.integer("partition"))


def _segment_fields(segment: SegmentRef) -> dict[str, object]:
    return {
        "key": segment.key,
        "base": segment.base,
        "end": segment.end,
        "epoch": segment.epoch,
        "record_count": segment.record_count,
        "timestamp_min_ms": segment.timestamp_min_ms,
        "timestamp_max_ms": segment.timestamp_max_ms,
        "bytes_raw": segment.bytes_raw,
        "bytes_stored": segment.bytes_stored,
        "footer_crc": f"{segment.footer_crc:08x}",
        "created_ms": segment.created_ms,
        "format": segment.format,
        "generation": segment.generation,
    }


def _read_segments(fields: Fields) -> tuple[SegmentRef, ...]:
    return tuple(
        SegmentRef(
            key=ObjectKey(item.text("key")),
            base=item.integer("base"),
            end=item.integer("end"),
            epoch=item.integer("epoch", high=EPOCH_MAX),
            record_count=item.integer("record_count"),
            timestamp_min_ms=item.integer("timestamp_min_ms", low=_TIMESTAMP_MIN),
            timestamp_max_ms=item.integer("timestamp_max_ms", low=_TIMESTAMP_MIN),
            bytes_raw=item.integer("bytes_raw"),
            bytes_stored=item.integer("bytes_stored"),
            footer_crc=item.crc("footer_crc"),
            created_ms=item.integer("created_ms"),
            format=item.text("format"),
            generation=item.integer("generation"),
        )
        for item in fields.objects("segments")
    )


def _aborted_fields(transaction: AbortedTransaction) -> dict[str, object]:
    return {
        "producer_id": transaction.producer_id,
        "offset_first": transaction.offset_first,
        "offset_last": transaction.offset_last,
        "stable_offset": transaction.stable_offset,
    }


def _read_aborted(fields: Fields) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(
            producer_id=item.integer("producer_id"),
            offset_first=item.integer("offset_first"),
            offset_last=item.integer("offset_last"),
            stable_offset=item.integer("stable_offset"),
        )
        for item in fields.objects("aborted")
    )


def _by_marker(transaction: AbortedTransaction) -> tuple[int, int]:
    return transaction.offset_last, transaction.producer_id
