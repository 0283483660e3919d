"""The one table of what the Kafka door serves.

Owns: which APIs and versions are offered and from which version on a message is flexible.
ApiVersions answers, request headers and the table in the README all read it; a row is added
together with its handler, never before (every client picks the highest version it finds).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from streamhouse.model.errors import DecodeError


class Api(NamedTuple):
    """One served API. Versions below `served_min` are offered but refused."""

    key: int
    name: str
    version_min: int
    version_max: int
    served_min: int


class UnsupportedRequest(DecodeError):
    """A request for an API or version that is not served.

    There is no format to answer in, so the connection is closed; only ApiVersions is answered, in
    version 0 with UNSUPPORTED_VERSION and the full table (KIP-511).
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id

    @property
    def is_api_versions(self) -> bool:
        return self.api_key == API_VERSIONS


PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75

APIS: Final[Mapping[int, Api]] = {
    api.key: api
    for api in (
        # librdkafka below 2.11.1 stops compressing unless version 0 is offered (KAFKA-18659).
        Api(PRODUCE, "Produce", 0, 13, 3),
        Api(FETCH, "Fetch", 4, 18, 4),
        Api(LIST_OFFSETS, "ListOffsets", 1, 11, 1),
        Api(METADATA, "Metadata", 0, 13, 0),
        Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 2),
        Api(OFFSET_FETCH, "OffsetFetch", 1, 10, 1),
        # librdkafka compresses with lz4 only if version 0 is offered.
        Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, 0),
        Api(JOIN_GROUP, "JoinGroup", 0, 9, 0),
        Api(HEARTBEAT, "Heartbeat", 0, 4, 0),
        Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 0),
        Api(SYNC_GROUP, "SyncGroup", 0, 5, 0),
        Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 0),
        Api(LIST_GROUPS, "ListGroups", 0, 5, 0),
        Api(API_VERSIONS, "ApiVersions", 0, 4, 0),
        Api(CREATE_TOPICS, "CreateTopics", 2, 7, 2),
        Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 1),
        Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 0),
        Api(INIT_PRODUCER_ID, "InitProducerId", 0, 5, 0),
        Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 2),
        Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, 1),
        Api(CREATE_ACLS, "CreateAcls", 1, 3, 1),
        Api(DELETE_ACLS, "DeleteAcls", 1, 3, 1),
        Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 1),
        Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 0),
        Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 1),
        Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, 0),
        Api(DELETE_GROUPS, "DeleteGroups", 0, 2, 0),
        Api(ELECT_LEADERS, "ElectLeaders", 0, 2, 0),
        Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 0),
        Api(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
        Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
        Api(OFFSET_DELETE, "OffsetDelete", 0, 0, 0),
        Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 0),
        Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 0),
        Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
        Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
        Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
        Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
        Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
    )
}


class Feature(NamedTuple):
    """A feature level of the cluster, told in ApiVersions 3 and later (KIP-584)."""

    name: str
    level_min: int
    level_max: int
    level: int  # in force


# Consoles take the version of the cluster from metadata.version (25 is Kafka's 4.0-IV3).
FEATURES: Final = (Feature("metadata.version", 7, 25, 25),)
FEATURES_EPOCH: Final = 0

NEVER: Final = 1 << 15  # above every int16 version

# First flexible version of every API Kafka knows, served or not.
FIRST_FLEXIBLE: Final[Mapping[int, int]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 17:
    NEVER, 18: 3, 19: 5, 20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2,
    30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2,
    43: 2, 44: 1, 45: 0, 46: 0, 47: NEVER, 48: 1, 49: 1, 50: 0, 51: 0, 52: 0, 53: 1, 54: 1, 55:
    0, 56: 2, 57: 0, 58: 0, 59: 0, 60: 0, 61: 0, 62: 0, 63: 0, 64: 0, 65: 0, 66: 0, 67: 0, 68:
    0, 69: 0, 70: 0, 71: 0, 72: 0, 73: 0, 74: 0, 75: 0, 76: 1, 77: 1, 78: 1, 79: 1, 80: 0, 81:
    0, 82: 0, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 88: 0, 89: 0, 90: 0, 91: 0, 92: 0
}  # fmt: skip


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the request (its header too) and the response body are flexible (KIP-482)."""
    return api_version >= FIRST_FLEXIBLE[api_key]


def has_tagged_response_header(api_key: int, api_version: int) -> bool:
    """ApiVersions always answers with header 0: its reader may not know the version yet."""
    return api_key != API_VERSIONS and is_flexible(api_key, api_version)


def markdown_table() -> str:
    """The served APIs as a table for the README."""
    lines = ["| Key | API | Versions | Note |", "|---|---|---|---|"]
    for api in APIS.values():
        note = ""
        if api.served_min > api.version_min:
            note = (
                f"offered from {api.version_min} for old librdkafka, served from {api.served_min}"
            )
        lines.append(f"| {api.key} | {api.name} | {api.served_min}-{api.version_max} | {note} |")
    return "\n".join(lines) + "\n"
