"""Frames that real clients sent, byte for byte.

Recorded from confluent-kafka 2.16 (librdkafka), kafka-python 3.0 and aiokafka 0.14 on a local
socket. A produce file holds five records written with the options in its name
(`<client>-<codec>-produce-v<version>.bin`); the others are named `<client>-<api>-v<version>`.
"""

from pathlib import Path

import pytest

from streamhouse.kafka_proto import apis, fetch, messages, produce
from streamhouse.kafka_proto.compression import Compression
from streamhouse.kafka_proto.framing import RequestHeader, parse_request_header, split_frames
from streamhouse.kafka_proto.record_batch import check_batch, decode_records
from streamhouse.model.limits import MESSAGE_BYTES_MAX
from streamhouse.model.records import Record, RecordHeader

GOLDEN = Path(__file__).parent / "golden"
PRODUCED = sorted(GOLDEN.glob("*-produce-v*.bin"))
FETCHED = sorted(GOLDEN.glob("*-fetch-v*.bin"))
TIME_MS = 1_700_000_000_000


def frame_of(path: Path) -> tuple[memoryview, RequestHeader]:
    (frame,), taken = split_frames(memoryview(bytearray(path.read_bytes())))
    assert taken == path.stat().st_size
    return frame, parse_request_header(frame)


def named(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in paths])


@named(sorted(GOLDEN.glob("*-apiversions-v*.bin")))
def test_sh103_real_clients_introduce_themselves(path: Path) -> None:
    frame, header = frame_of(path)
    assert header.api_key == apis.API_VERSIONS
    assert path.stem.endswith(f"-v{header.api_version}")
    assert header.client_id
    request = messages.decode_request(header.api_key, header.api_version, frame, header.body_at)
    if header.api_version >= 3:
        names = ("confluent-kafka-python", "kafka-python")
        assert request.client_software_name in names
        assert request.client_software_version


@named(sorted(GOLDEN.glob("*-metadata-v*.bin")))
def test_sh103_real_clients_ask_for_metadata(path: Path) -> None:
    frame, header = frame_of(path)
    request = messages.decode_request(header.api_key, header.api_version, frame, header.body_at)
    expected = ["golden"] if path.stem.endswith("-1") else []
    assert [topic.name for topic in request.topics] == expected


@named(sorted(GOLDEN.glob("*-initproducerid-v*.bin")))
def test_sh106_real_clients_ask_for_a_producer_id(path: Path) -> None:
    frame, header = frame_of(path)
    request = messages.decode_request(header.api_key, header.api_version, frame, header.body_at)
    assert (request.transactional_id, request.producer_id) == (None, -1)


@named(sorted(GOLDEN.glob("*-listoffsets-v*.bin")))
def test_sh109_real_clients_ask_for_the_earliest_offset(path: Path) -> None:
    frame, header = frame_of(path)
    request = messages.decode_request(header.api_key, header.api_version, frame, header.body_at)
    ((partition,),) = (topic.partitions for topic in request.topics)
    assert (partition.partition_index, partition.timestamp) == (0, -2)


@named(FETCHED)
def test_sh103_real_clients_fetch(path: Path) -> None:
    frame, header = frame_of(path)
    request = fetch.decode_request(frame, header.body_at, header.api_version)
    (topic,) = request.topics
    assert (topic.name == "golden") == (topic.topic_id is None)
    assert [(p.partition, p.fetch_offset) for p in topic.partitions] == [(0, 0)]
    assert request.max_wait_ms == 500
    assert request.replica_id == -1


@named(PRODUCED)
def test_sh110_batches_of_real_clients_are_accepted_and_read(path: Path) -> None:
    """Goal: each codec as this client frames it; headers, times and nulls are all there."""
    frame, header = frame_of(path)
    request = produce.decode_request(frame, header.body_at, header.api_version)
    (topic,) = request.topics
    ((partition, records),) = topic.partitions
    assert (topic.name, partition) == ("golden", 0)
    assert records is not None
    batch = check_batch(records, MESSAGE_BYTES_MAX)
    client, codec = path.stem.rsplit("-produce", 1)[0].rsplit("-", 1)
    assert batch.codec == Compression[codec.upper()]
    headers = [RecordHeader("trace", b"\x00\xff")]
    if client == "confluent":  # the others cannot send a header without a value
        headers.append(RecordHeader("nil", None))
    assert decode_records(records) == [
        Record(0, TIME_MS, b"key-0", b"value-0 " * 20, tuple(headers)),
        Record(1, TIME_MS + 1, b"key-1", b"value-1 " * 20),
        Record(2, TIME_MS + 2, b"key-2", b"value-2 " * 20),
        Record(3, TIME_MS + 3, None, b"no key"),
        Record(4, TIME_MS + 4, b"tombstone", None),
    ]


def test_sh110_every_codec_was_recorded_in_both_snappy_framings() -> None:
    stems = {path.stem for path in PRODUCED}
    assert len(stems) >= 14
    assert b"\x82SNAPPY\x00" in (GOLDEN / "aiokafka-snappy-produce-v7.bin").read_bytes()
    assert b"\x82SNAPPY\x00" not in (GOLDEN / "confluent-snappy-produce-v10.bin").read_bytes()
