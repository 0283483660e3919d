"""InitProducerId (key 22), versions 0-5.

Owns: handing out producer ids that are never used twice.
Behaviour: without a transactional id a fresh id with epoch 0 is given, whatever the client had.
Gaps: transactional ids are refused until transactions are served.
"""

from streamhouse.kafka_proto.apis import INIT_PRODUCER_ID
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.model.errors import OutcomeUnknown, Unavailable
from streamhouse.server.kafka.door import Caller, Door, Frame


async def handle(door: Door, caller: Caller, frame: memoryview) -> Frame:
    header = caller.header
    request = decode_request(INIT_PRODUCER_ID, header.api_version, frame, header.body_at)
    producer_id, epoch, error = -1, -1, ErrorCode.NONE
    if request.transactional_id is not None:
        error = ErrorCode.INVALID_REQUEST
    else:
        try:
            producer_id, epoch = await door.agent.new_producer_id(), 0
        except (Unavailable, OutcomeUnknown):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    values = {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}
    return (encode_response(INIT_PRODUCER_ID, header.api_version, header.correlation_id, values),)
