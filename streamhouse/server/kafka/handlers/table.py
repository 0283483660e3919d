"""Which handler serves which API. Every row of `kafka_proto.apis.APIS` has one."""

from collections.abc import Mapping

from streamhouse.kafka_proto import apis
from streamhouse.server.kafka.door import Handler
from streamhouse.server.kafka.handlers import (
    api_versions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

HANDLERS: Mapping[int, Handler] = {
    apis.PRODUCE: produce.handle,
    apis.FETCH: fetch.handle,
    apis.LIST_OFFSETS: list_offsets.handle,
    apis.METADATA: metadata.handle,
    apis.OFFSET_COMMIT: offset_commit.handle,
    apis.OFFSET_FETCH: offset_fetch.handle,
    apis.FIND_COORDINATOR: find_coordinator.handle,
    apis.JOIN_GROUP: join_group.handle,
    apis.HEARTBEAT: heartbeat.handle,
    apis.LEAVE_GROUP: leave_group.handle,
    apis.SYNC_GROUP: sync_group.handle,
    apis.DESCRIBE_GROUPS: describe_groups.handle,
    apis.LIST_GROUPS: list_groups.handle,
    apis.API_VERSIONS: api_versions.handle,
    apis.CREATE_TOPICS: create_topics.handle,
    apis.DELETE_TOPICS: delete_topics.handle,
    apis.DELETE_RECORDS: delete_records.handle,
    apis.INIT_PRODUCER_ID: init_producer_id.handle,
    apis.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    apis.DESCRIBE_CONFIGS: describe_configs.handle,
    apis.DELETE_GROUPS: delete_groups.handle,
    apis.OFFSET_DELETE: offset_delete.handle,
    apis.DESCRIBE_CLUSTER: describe_cluster.handle,
}
assert HANDLERS.keys() == apis.APIS.keys(), "advertise exactly what is served"
