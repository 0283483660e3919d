"""DescribeAcls (key 29), versions 1-3.

Owns: saying that there are no access rules because nothing checks them.
Behaviour: SECURITY_DISABLED, which consoles and tools show as "no authorizer", as Kafka answers.
Versions: 2 flexible; 3 user resources.
"""

from streamhouse.kafka_proto.apis import DESCRIBE_ACLS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door

NO_AUTHORIZER = "No authorizer is configured on the broker."


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    decode_request(DESCRIBE_ACLS, header.api_version, frame, header.body_at)
    values = {
        "error_code": ErrorCode.SECURITY_DISABLED,
        "error_message": NO_AUTHORIZER,
        "resources": (),
    }
    return (encode_response(DESCRIBE_ACLS, header.api_version, header.correlation_id, values),)
