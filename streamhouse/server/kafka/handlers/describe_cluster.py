"""DescribeCluster (key 60), versions 0-2: who the brokers are."""

from streamhouse.kafka_proto.apis import DESCRIBE_CLUSTER
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import NODE_ID, Answer, Caller, Door
from streamhouse.server.kafka.handlers.metadata import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED

ENDPOINT_BROKERS = 1


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(DESCRIBE_CLUSTER, header.api_version, frame, header.body_at)
    address = door.address(caller)
    endpoint_type = getattr(request, "endpoint_type", ENDPOINT_BROKERS)
    asked = request.include_cluster_authorized_operations
    values = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": ENDPOINT_BROKERS,
        "cluster_id": door.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [
            {
                "broker_id": NODE_ID,
                "host": address.host,
                "port": address.port,
                "rack": door.rack,
                "is_fenced": False,
            }
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
    }
    if endpoint_type != ENDPOINT_BROKERS:
        values |= {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": "there are no controllers apart from the brokers",
            "endpoint_type": endpoint_type,
            "brokers": [],
        }
    return (encode_response(DESCRIBE_CLUSTER, header.api_version, header.correlation_id, values),)
