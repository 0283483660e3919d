"""Manifests and topic descriptions: what makes a bucket readable alone."""

import json
from dataclasses import replace

import pytest
import segment_samples as samples
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.model.errors import Corrupt, DecodeError
from streamhouse.model.keys import SegmentName, manifest_prefix, segment_key
from streamhouse.model.partition import SegmentRef
from streamhouse.model.producers import AbortedTransaction
from streamhouse.segment.documents import encode_document
from streamhouse.segment.manifest import (
    INLINE_SEGMENTS_MAX,
    PAGE_SEGMENTS_MAX,
    PAGE_SEGMENTS_MIN,
    Manifest,
    TopicDeletion,
    TopicDescription,
    decode_deleted,
    decode_manifest,
    decode_topic,
    encode_deleted,
    encode_manifest,
    encode_topic,
    join_pages,
    page_prefix,
    split_segments,
)

Damaged = (Corrupt, DecodeError)
TOPIC = TopicDescription(samples.TP.topic_id, "orders", 6, 1_700_000_000_000)


def segment(base: int, end: int) -> SegmentRef:
    return SegmentRef(
        key=segment_key(SegmentName(samples.TP, base, end, 4, "0a1b2c3d")),
        base=base,
        end=end,
        epoch=4,
        record_count=end - base,
        timestamp_min_ms=-1,
        timestamp_max_ms=1_700_000_000_000 + end,
        bytes_raw=1000,
        bytes_stored=700,
        footer_crc=base * 2_654_435_761 % 2**32,
        created_ms=1_700_000_000_000,
        generation=1,
    )


def manifest(count: int, *, first: int = 0) -> Manifest:
    """`count` segments of ten offsets each; every tenth holds an abort marker."""
    bases = range(first * 10, (first + count) * 10, 10)
    return Manifest(
        tp=samples.TP,
        version=17,
        epoch=4,
        log_start=first * 10,
        stable_end=(first + count) * 10,
        segments=tuple(segment(base, base + 10) for base in bases),
        aborted=tuple(AbortedTransaction(9, b, b + 5, b) for b in bases[::10]),
        written_ms=1_700_000_000_000,
    )


def round_trip(written: Manifest) -> Manifest:
    body, pages = encode_manifest(written)
    return join_pages(decode_manifest(body), dict(pages))


@pytest.mark.parametrize("count", [0, 1, 3, INLINE_SEGMENTS_MAX, INLINE_SEGMENTS_MAX + 1, 5_000])
def test_a_manifest_comes_back_whole(count: int) -> None:
    """Goal: a reader with only the bucket sees every segment, also when they fill pages."""
    written = manifest(count)
    assert round_trip(written) == written
    _, pages = encode_manifest(written)
    assert bool(pages) == (count > INLINE_SEGMENTS_MAX)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**40), st.lists(st.integers(1, 2**20), max_size=6), st.booleans())
def test_any_small_manifest_round_trips(base: int, spans: list[int], cut: bool) -> None:
    """Goal: any contiguous segments are accepted, also with the log start inside the first."""
    segments, end = [], base
    for span in spans:
        segments.append(segment(end, end + span))
        end += span
    written = replace(
        manifest(0),
        segments=tuple(segments),
        log_start=min(base + cut, end),
        stable_end=end,
    )
    assert round_trip(written) == written


def test_successive_manifests_share_their_pages() -> None:
    """Goal: a roll, a retention or a merge rewrites the pages next to it, not all of them."""
    before = {key for key, _ in encode_manifest(manifest(6_000))[1]}
    grown = {key for key, _ in encode_manifest(manifest(6_001))[1]}
    assert len(before) > 5
    assert before <= grown
    retained = {key for key, _ in encode_manifest(manifest(5_990, first=10))[1]}
    assert len(before - retained) <= 3
    whole = manifest(6_000)
    merged = (*whole.segments[:3_000], segment(30_000, 30_100), *whole.segments[3_010:])
    merged_pages = {key for key, _ in encode_manifest(replace(whole, segments=merged))[1]}
    assert len(before - merged_pages) <= 3


def test_pages_are_bounded_and_named_by_their_content() -> None:
    """Goal: one key, one byte string; and no document grows without end."""
    groups, rest = split_segments(manifest(9_000).segments)
    assert [s for group in groups for s in group] + list(rest) == list(manifest(9_000).segments)
    assert all(PAGE_SEGMENTS_MIN <= len(group) <= PAGE_SEGMENTS_MAX for group in groups)
    assert len(rest) < PAGE_SEGMENTS_MAX
    for key, body in encode_manifest(manifest(3_000))[1]:
        assert key.startswith(page_prefix(samples.TP))
        assert not key.startswith(manifest_prefix(samples.TP))
        assert len(body) < 1_000_000
    other = replace(manifest(3_000), aborted=())
    assert {k for k, _ in encode_manifest(other)[1]}.isdisjoint(
        {k for k, _ in encode_manifest(manifest(3_000))[1]}
    )


def test_a_missing_or_exchanged_page_is_refused() -> None:
    """Goal: a hole in the list is an error, never a shorter log."""
    body, pages = encode_manifest(manifest(4_000))
    head, bodies = decode_manifest(body), dict(pages)
    keys = list(bodies)
    with pytest.raises(Corrupt, match=f"{keys[1]} is missing"):
        join_pages(head, {key: bodies[key] for key in keys if key != keys[1]})
    with pytest.raises(Corrupt, match="not the one"):
        join_pages(head, {**bodies, keys[0]: bodies[keys[1]]})
    with pytest.raises(Corrupt, match="gap"):
        join_pages(replace(head, pages=head.pages[:1] + head.pages[2:]), bodies)


def test_segments_that_do_not_cover_the_log_are_not_written() -> None:
    """Goal: no manifest makes a reader skip records."""
    good = manifest(5)
    gap = replace(good, segments=good.segments[:2] + good.segments[3:])
    overlap = replace(good, segments=(segment(0, 11), *good.segments[1:]))
    late = replace(good, segments=good.segments[1:])
    short = replace(good, stable_end=51)
    none = replace(good, segments=())
    for wrong, message in (
        (gap, "gap or overlap"),
        (overlap, "gap or overlap"),
        (late, "do not cover"),
        (short, "do not cover"),
        (none, "do not cover"),
        (replace(good, segments=(segment(0, 0),)), "no offsets"),
    ):
        with pytest.raises(Corrupt, match=message):
            encode_manifest(wrong)


def test_every_flipped_byte_of_a_manifest_is_detected_or_harmless() -> None:
    """Goal (SH-64): a changed manifest is refused, or says the same."""
    written = manifest(2)
    body, _ = encode_manifest(written)
    for position in range(len(body)):
        for mask in (0x01, 0x02, 0x10, 0x80):
            damaged = bytearray(body)
            damaged[position] ^= mask
            try:
                found = join_pages(decode_manifest(damaged), {})
            except Damaged:
                continue
            assert found == written
    for length in range(len(body) - 1):
        with pytest.raises(Damaged):
            decode_manifest(body[:length])


def test_topic_documents_round_trip() -> None:
    deletion = TopicDeletion(samples.TP.topic_id, "orders", 1_700_000_000_001)
    assert decode_topic(encode_topic(TOPIC)) == TOPIC
    assert decode_deleted(encode_deleted(deletion)) == deletion
    with pytest.raises(DecodeError, match="expected 'streamhouse-topic'"):
        decode_topic(encode_deleted(deletion))


def test_later_writers_may_add_members_but_not_change_the_version() -> None:
    """Goal: an older reader goes on reading what it understands."""
    known = json.loads(encode_topic(TOPIC))
    del known["crc32c"]
    added = encode_document("streamhouse-topic", {**known, "colour": ["blue", 1.5, None]})
    assert decode_topic(added) == TOPIC
    assert decode_topic(json.dumps(json.loads(added), indent=2).encode()) == TOPIC
    newer = encode_topic(TOPIC).replace(b'"format_version":1', b'"format_version":2')
    with pytest.raises(DecodeError, match="format version 2"):
        decode_topic(newer)


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("name", 5, "streamhouse-topic.name is 5, expected a text"),
        ("name", "", "expected a text"),
        ("partition_count", 0, "an integer from 1"),
        ("partition_count", True, "an integer from 1"),
        ("partition_count", 6.0, "an integer from 1"),
        ("created_ms", 2**63, "an integer from 0"),
        ("topic_id", "6F1D2C3B4A594E68877896A5B4C3D2E1", "usual form"),
        ("topic_id", "x", "a UUID"),
        ("topic_id", ["x"] * 1000, "is a list"),
    ],
)
def test_wrong_members_are_named(member: str, value: object, message: str) -> None:
    """Goal (SH-64): the message says which member is wrong and what was expected."""
    known = json.loads(encode_topic(TOPIC))
    del known["crc32c"]
    with pytest.raises(DecodeError, match=message):
        decode_topic(encode_document("streamhouse-topic", {**known, member: value}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"kind":NaN}',
        b"[" * 100_000,
        b'{"kind":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"kind":"streamhouse-topic","format_version":1,"crc32c":"00000000","x":'
        + b"[" * 900
        + b"]" * 900
        + b"}",
        b'{"kind":"streamhouse-topic","format_version":' + b"9" * 10_000 + b"}",
        b'{"kind":"streamhouse-topic","format_version":1,"crc32c":"0000000G"}',
    ],
)
def test_hostile_documents_are_refused(body: bytes) -> None:
    """Goal (SH-64): any JSON or no JSON gives an error of ours."""
    with pytest.raises(Damaged):
        decode_topic(body)


def test_the_segment_members_stand_in_the_manifest() -> None:
    """Goal: other tools find what the format's page promises."""
    body, _ = encode_manifest(manifest(1))
    document = json.loads(body)
    assert document["kind"] == "streamhouse-manifest"
    assert document["segments"][0]["footer_crc"] == "00000000"
    assert set(document["segments"][0]) == {field for field in SegmentRef.__slots__}
    assert document["aborted"] == [
        {"producer_id": 9, "offset_first": 0, "offset_last": 5, "stable_offset": 0}
    ]
