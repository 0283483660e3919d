"""The codec: what is encoded is found again, however it is cut into pieces."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.ports.wal import WalEntry
from streamhouse.wal.format import (
    COALESCE_BYTES_MAX,
    GROUP_HEADER_BYTES,
    HEADER_BLOCK_BYTES,
    FileHeader,
    Found,
    GroupStamp,
    Scan,
    align,
    checksum_seed,
    decode_file_header,
    encode_file_header,
    encode_group,
    find_groups,
)
from tests.unit.wal.wal_world import entry, plain, tp

WAL_ID = "0123456789abcdef" * 2
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
ENTRIES = st.builds(WalEntry, I32.map(tp), I32, I64, I64, I32, st.binary(max_size=700))


def _header(generation: int = 5, file_bytes: int = 256 * 1024) -> FileHeader:
    return FileHeader(WAL_ID, generation, 4, 2, 1, 0, 0, file_bytes)


def _encode(groups: list[list[WalEntry]], generation: int = 5) -> bytes:
    out = bytearray()
    sequence = 1
    for entries in groups:
        seed = checksum_seed(WAL_ID, generation)
        stamp = GroupStamp(seed, generation, sequence, sequence - 1, 2)
        buffers, length = encode_group(stamp, entries, sum(len(e.body) for e in entries))
        data = b"".join(buffers)
        assert len(data) == length
        out += data + bytes(align(length) - length)
        sequence += len(entries)
    return bytes(out)


def _scan(data: bytes, piece_bytes: int, generation: int = 5) -> list[Found]:
    whole = bytes(HEADER_BLOCK_BYTES) + data
    scan = Scan(_header(generation, len(whole)))
    found = []
    while scan.ended is None:
        found += scan.feed(whole[scan.at : scan.at + max(piece_bytes, scan.wanted)])
    return found


@given(st.lists(st.lists(ENTRIES, max_size=5), max_size=4), st.integers(1, 3000))
@settings(max_examples=100, deadline=None)
def test_groups_are_read_as_written_in_pieces_of_any_size(
    groups: list[list[WalEntry]], piece_bytes: int
) -> None:
    data = _encode(groups)
    found = _scan(data, piece_bytes)
    entries = [one for group in groups for one in group]
    assert [plain(one.entry) for one in found] == entries
    assert [one.sequence for one in found] == list(range(1, len(entries) + 1))
    for one in found:
        at = one.body_at - HEADER_BLOCK_BYTES
        assert data[at : at + len(one.entry.body)] == bytes(one.entry.body)


def test_large_bodies_are_passed_through_uncopied() -> None:
    large = entry(0, COALESCE_BYTES_MAX + 1)
    small = entry(1, 10)
    stamp = GroupStamp(0, 1, 1, 0, 1)
    buffers, _ = encode_group(stamp, [small, large, small], COALESCE_BYTES_MAX + 21)
    assert len(buffers) == 3
    assert buffers[1] is large.body


def test_records_of_another_generation_or_wal_are_not_found() -> None:
    data = _encode([[entry(0)], [entry(1)]], generation=5)
    assert len(_scan(data, 4096, generation=5)) == 2
    assert _scan(data, 4096, generation=6) == []
    assert [group.first_sequence for group in find_groups(WAL_ID, data, 0, 0)] == [1, 2]
    assert list(find_groups("f" * 32, data, 0, 0)) == []


def _group_of_6_with_records(*, seed_generation: int, field_generation: int) -> bytes:
    """An intact group header of generation 6 over a record that may come from elsewhere."""
    one = entry(0)
    head = b"".join(encode_group(GroupStamp(checksum_seed(WAL_ID, 6), 6, 1, 0, 2), [one], 100)[0])
    seed = checksum_seed(WAL_ID, seed_generation)
    rest = b"".join(encode_group(GroupStamp(seed, field_generation, 1, 0, 2), [one], 100)[0])
    return head[:GROUP_HEADER_BYTES] + rest[GROUP_HEADER_BYTES:]


def test_a_stale_record_under_a_new_group_header_is_rejected_twice_over() -> None:
    """Its checksum has another seed, and its generation differs: each alone is enough."""
    good = _group_of_6_with_records(seed_generation=6, field_generation=6)
    assert len(_scan(good, 4096, generation=6)) == 1
    wrong_seed = _group_of_6_with_records(seed_generation=5, field_generation=6)
    assert _scan(wrong_seed, 4096, generation=6) == []
    wrong_field = _group_of_6_with_records(seed_generation=6, field_generation=5)
    assert _scan(wrong_field, 4096, generation=6) == []


@given(st.tuples(U64, U64, U64, U64, U64, U64, U64))
@settings(max_examples=50, deadline=None)
def test_file_headers_are_read_as_written(numbers: tuple[int, ...]) -> None:
    header = FileHeader(WAL_ID, *numbers)
    assert decode_file_header(encode_file_header(header)) == header


@given(st.binary(max_size=HEADER_BLOCK_BYTES))
@settings(max_examples=50, deadline=None)
def test_random_bytes_are_no_header(block: bytes) -> None:
    assert decode_file_header(block) is None


@given(st.binary(max_size=2000))
@settings(max_examples=50, deadline=None)
def test_random_bytes_hold_no_records(data: bytes) -> None:
    assert _scan(data, 512) == []
