"""The format does not drift: files written once are read for ever, and are still written so."""

import re
from pathlib import Path

import segment_samples as samples

from streamhouse.segment.decode import verify_segment
from streamhouse.segment.encode import SegmentBuilder
from streamhouse.segment.layout import CODEC_LZ4, CODEC_STORED

GOLDEN = Path(__file__).parent / "golden"
DOCUMENT = Path(__file__).parents[3] / "docs" / "format" / "strm-v1.md"


def test_sh59_raw_golden_file_is_written_byte_for_byte() -> None:
    """Goal (SH-59, SH-62): any change of the bytes of a segment is a deliberate one."""
    assert samples.joined(samples.raw_golden()) == (GOLDEN / "raw.strm").read_bytes()


def test_sh59_raw_golden_file_is_read() -> None:
    """Goal (SH-59, SH-62): magic, blocks, index and footer of an old file are understood."""
    data = (GOLDEN / "raw.strm").read_bytes()
    tail = verify_segment(data)
    assert data[:4] == b"STRM"
    assert (tail.base, tail.end, tail.footer.record_count) == (100, 103, 3)
    assert tail.footer.timestamp_min_ms == samples.TIME_MS - 1000
    assert tail.footer.timestamp_max_ms == samples.TIME_MS + 1
    assert tail.snapshot == samples.raw_golden_snapshot()
    assert tail.aborted == tail.snapshot.aborted
    assert [t.producer_id for t in tail.open_transactions] == [4000]
    assert (tail.sections.epoch_first, tail.sections.epoch_last) == (5, 6)
    assert tail.sections.schema_ids == (7,)
    assert samples.read_blocks(data) == [
        samples.batch(100, [b"alpha", b"beta"]).body,
        samples.batch(102, [b"gamma"], time_ms=samples.TIME_MS - 1000, epoch=6).body,
    ]


def test_sh60_lz4_golden_file_is_read() -> None:
    """Goal (SH-60): blocks compressed by another version of the library come back the same."""
    data = (GOLDEN / "lz4.strm").read_bytes()
    tail = verify_segment(data)
    assert [block.codec for block in tail.blocks] == [CODEC_LZ4, CODEC_STORED]
    expected = samples.lz4_golden_batches()
    assert samples.read_blocks(data) == [body for body, _ in expected]
    assert tail.blocks[0].stored_length < tail.blocks[0].raw_length
    fresh = samples.joined(samples.lz4_golden())
    assert samples.read_blocks(fresh) == samples.read_blocks(data)


def test_copying_every_block_of_the_lz4_golden_file_gives_the_file_again() -> None:
    """Goal: a merge moves compressed blocks verbatim, whatever the library compresses to now."""
    data = (GOLDEN / "lz4.strm").read_bytes()
    tail = samples.read_tail(data)
    builder = SegmentBuilder(tail.tp, tail.base)
    for block in tail.blocks:
        builder.add_encoded_block(block, data[block.position : block.stop])
    assert samples.joined(builder.finish(tail.end, tail.snapshot)) == data


def test_the_dump_in_the_document_is_the_golden_file() -> None:
    """Goal: the worked example of the format's description is true."""
    rows = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", DOCUMENT.read_text(), re.MULTILINE)
    data = bytearray()
    for position, row in rows:
        assert int(position, 16) == len(data), f"the dump jumps at {position}"
        data += bytes.fromhex(row)
    assert bytes(data) == (GOLDEN / "raw.strm").read_bytes()
