"""Produce (key 0), served 3-13.

Owns: one request -> one append per partition, and the answers back in request order.
Must not know: WAL, objects, SQL.
Behaviour: errors are per partition, the others succeed; acks=0 gets no response, and an error
closes the connection, as Kafka does; timeout_ms bounds the wait, not the write. A client above
its quota is answered as ever and then not read from for a while.
Gaps: transactional batches are refused until transactions are served.
Versions: 7 zstd allowed; 8 record errors; 10 leader hint; 13 topic ids.
"""

from streamhouse.agent.service import BatchRejected
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    decode_request,
    encode_response,
)
from streamhouse.model.errors import Unavailable
from streamhouse.model.topic import Topic
from streamhouse.server.kafka.door import Answer, Caller, CloseConnection, Deferred, Door, Frame

ACKS_ALLOWED = (-1, 0, 1)
ATTRIBUTES_LOW_AT = 22
CODEC_ZSTD = 4
VERSION_ZSTD = 7


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    version = caller.header.api_version
    request = decode_request(frame, caller.header.body_at, version)
    sequence = 0
    answers: list[ProduceTopicResult] = []
    for name, topic_id, partitions in request.topics:
        topic = door.find_topic(name, topic_id)
        results = []
        for number, records in partitions:
            result, appended = _append(door, request, version, topic, number, records)
            results.append(result)
            sequence = max(sequence, appended)
        answers.append(ProduceTopicResult(name, topic_id, results))
    throttle_ms = door.quotas.produced_ms(caller.header.client_id, len(frame))
    if throttle_ms:
        caller.mute(throttle_ms)
    if request.acks == 0:
        if any(result.error_code for answer in answers for result in answer.partitions):
            raise CloseConnection("a Produce with acks=0 failed")
        return None

    correlation_id = caller.header.correlation_id

    def encode() -> Frame:
        return (encode_response(version, correlation_id, answers, throttle_ms=throttle_ms),)

    def encode_late() -> Frame:
        late = _timed_out(answers)
        return (encode_response(version, correlation_id, late, throttle_ms=throttle_ms),)

    if not sequence:  # nothing was appended
        return encode()
    return Deferred(sequence, encode, max(request.timeout_ms, 0), encode_late)


def _append(
    door: Door,
    request: ProduceRequest,
    version: int,
    topic: Topic | ErrorCode,
    number: int,
    records: memoryview | None,
) -> tuple[ProducePartitionResult, int]:
    """The partition's answer, and the WAL sequence number it waits for (0: none)."""
    partition = door.find_partition(topic, number)
    if isinstance(partition, ErrorCode):
        return ProducePartitionResult(number, partition), 0
    if request.acks not in ACKS_ALLOWED:
        return ProducePartitionResult(number, ErrorCode.INVALID_REQUIRED_ACKS), 0
    if records is None:
        return ProducePartitionResult(number, ErrorCode.INVALID_RECORD), 0
    if version < VERSION_ZSTD and _codec(records) == CODEC_ZSTD:
        return ProducePartitionResult(number, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), 0
    try:
        appended = door.agent.append(partition, records, request.acks)
    except BatchRejected as error:
        return _rejected(number, error), 0
    except Unavailable as error:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        return ProducePartitionResult(number, code, error_message=str(error)), 0
    result = ProducePartitionResult(
        number,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start,
    )
    return result, appended.sequence


def _rejected(number: int, error: BatchRejected) -> ProducePartitionResult:
    at_fault = [(index, error.message) for index in error.indexes]
    return ProducePartitionResult(
        number, error.code, record_errors=at_fault, error_message=error.message
    )


def _codec(records: memoryview) -> int:
    return records[ATTRIBUTES_LOW_AT] & 0x07 if len(records) > ATTRIBUTES_LOW_AT else 0


def _timed_out(answers: list[ProduceTopicResult]) -> list[ProduceTopicResult]:
    """What was appended may still become durable, so the client is told only that it is late."""
    late = []
    for name, topic_id, partitions in answers:
        results = [
            r if r.error_code else ProducePartitionResult(r.partition, ErrorCode.REQUEST_TIMED_OUT)
            for r in partitions
        ]
        late.append(ProduceTopicResult(name, topic_id, results))
    return late
