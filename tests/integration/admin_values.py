"""Requests of the administration APIs that make sense, and the codes a lone broker answers with."""

from collections.abc import Mapping
from typing import Any

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 33, 44
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS = 35, 37, 43
ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 45, 46
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
DESCRIBE_QUORUM, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 55, 74, 75

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# What is right to answer, where it is not success.
ADMIN_CODES: Mapping[int, frozenset[int]] = {
    DESCRIBE_ACLS: frozenset({54}),
    CREATE_ACLS: frozenset({54}),
    DELETE_ACLS: frozenset({54}),
    CREATE_PARTITIONS: frozenset({44}),
    ELECT_LEADERS: frozenset({0, 84}),
}


def admin_values(topic: str) -> dict[int, dict[str, Any]]:
    """One request per API, with every field any version of it has."""
    acl = {"resource_type": 2, "resource_name": topic, "principal": "User:a", "host": "*"}
    acl |= {"operation": 3, "permission_type": 3, "resource_pattern_type": 3}
    acl_filter = {"resource_type_filter": 2, "resource_name_filter": None, "host_filter": None}
    acl_filter |= {"principal_filter": None, "operation": 1, "permission_type": 1}
    config = {"name": "retention.ms", "config_operation": SET, "value": "1000000"}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [config]}
    entity = [{"entity_type": "client-id", "entity_name": "nobody"}]
    limit = {"key": "producer_byte_rate", "value": 1e9, "remove": False}
    component = {"entity_type": "client-id", "match_type": 0, "match": "nobody"}
    replicas = {"partition_index": 0, "replicas": [0]}
    metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    return {
        DESCRIBE_ACLS: acl_filter,
        CREATE_ACLS: {"creations": [acl]},
        DELETE_ACLS: {"filters": [acl_filter]},
        ALTER_CONFIGS: {"resources": [resource]},
        INCREMENTAL_ALTER_CONFIGS: {"resources": [resource]},
        DESCRIBE_LOG_DIRS: {"topics": [{"topic": topic, "partitions": [0]}]},
        CREATE_PARTITIONS: {
            "topics": [{"name": topic, "count": 4, "assignments": None}],
            "timeout": 5_000,
        },
        ELECT_LEADERS: {
            "topic_partitions": [{"topic": topic, "partitions": [0]}],
            "timeout": 5_000,
        },
        ALTER_PARTITION_REASSIGNMENTS: {
            "topics": [{"name": topic, "partitions": [replicas]}],
            "timeout": 5_000,
        },
        LIST_PARTITION_REASSIGNMENTS: {"topics": None, "timeout": 5_000},
        DESCRIBE_CLIENT_QUOTAS: {"components": [component]},
        ALTER_CLIENT_QUOTAS: {"entries": [{"entity": entity, "ops": [limit]}]},
        DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        DESCRIBE_QUORUM: {"topics": [metadata]},
        LIST_CONFIG_RESOURCES: {"resource_types": [TOPIC]},
        DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": topic}]},
    }
