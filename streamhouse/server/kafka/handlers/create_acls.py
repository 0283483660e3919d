"""CreateAcls (key 30), versions 1-3.

Owns: one refusal per rule asked for: a rule that nothing checks must not look like protection.
Versions: 2 flexible; 3 user resources.
"""

from streamhouse.kafka_proto.apis import CREATE_ACLS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door
from streamhouse.server.kafka.handlers.describe_acls import NO_AUTHORIZER


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(CREATE_ACLS, header.api_version, frame, header.body_at)
    refused = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": NO_AUTHORIZER}
    values = {"results": [refused for _ in request.creations]}
    return (encode_response(CREATE_ACLS, header.api_version, header.correlation_id, values),)
