"""ApiVersions (key 18), versions 0-4.

Owns: telling what is served and which features are in force, from `kafka_proto.apis`.
Behaviour: a version that is not known is answered in version 0 with UNSUPPORTED_VERSION and the
table (KIP-511); the connection does that, because the request cannot be parsed.
Versions: 3 flexible, client name checked; 4 features with minimum 0.
"""

from streamhouse.kafka_proto.apis import API_VERSIONS, APIS, FEATURES, FEATURES_EPOCH
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.messages import decode_request, encode_response
from streamhouse.server.kafka.door import SOFTWARE_NAME, Answer, Caller, Door, Frame

VERSION_NAMES = 3


def handle(door: Door, caller: Caller, frame: memoryview) -> Answer:
    header = caller.header
    request = decode_request(API_VERSIONS, header.api_version, frame, header.body_at)
    error = ErrorCode.NONE
    if header.api_version >= VERSION_NAMES and not (
        SOFTWARE_NAME.match(request.client_software_name)
        and SOFTWARE_NAME.match(request.client_software_version)
    ):
        error = ErrorCode.INVALID_REQUEST
    return answer(header.api_version, header.correlation_id, error)


def answer(version: int, correlation_id: int, error: ErrorCode) -> Frame:
    rows = [
        {"api_key": api.key, "min_version": api.version_min, "max_version": api.version_max}
        for api in APIS.values()
    ]
    values = {
        "error_code": error,
        "api_keys": rows,
        "supported_features": [
            {"name": f.name, "min_version": f.level_min, "max_version": f.level_max}
            for f in FEATURES
        ],
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": [
            {"name": f.name, "min_version_level": f.level, "max_version_level": f.level}
            for f in FEATURES
        ],
    }
    return (encode_response(API_VERSIONS, version, correlation_id, values),)
