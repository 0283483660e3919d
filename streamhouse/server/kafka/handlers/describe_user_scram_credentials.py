"""DescribeUserScramCredentials (key 50), version 0.

Owns: saying that nobody has credentials, for tools that show them beside quotas.
Behaviour: no names ask for everybody, which is an empty list; a name is RESOURCE_NOT_FOUND, and a
name given twice DUPLICATE_RESOURCE, as in Kafka.
Gaps: credentials cannot be made, because nothing would check them.
"""

from collections import Counter
from typing import Any

from streamhouse.kafka_proto.apis import DESCRIBE_USER_SCRAM_CREDENTIALS
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import Answer, Caller, Door


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header, key = caller.header, DESCRIBE_USER_SCRAM_CREDENTIALS
    request = decode_request(key, header.api_version, frame, header.body_at)
    named = Counter(user.name for user in request.users or ())
    values = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [_result(name, count) for name, count in named.items()],
    }
    return (encode_response(key, header.api_version, header.correlation_id, values),)


def _result(name: str, count: int) -> dict[str, Any]:
    code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credentials"
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"the request names user {name!r} twice"
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": ()}
