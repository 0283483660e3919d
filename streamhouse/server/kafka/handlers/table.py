"""Which handler serves which API. Every row of `kafka_proto.apis.APIS` has one."""

from collections.abc import Mapping

from streamhouse.kafka_proto import apis
from streamhouse.server.kafka.door import Handler
from streamhouse.server.kafka.handlers import (
    api_versions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS: Mapping[int, Handler] = {
    apis.PRODUCE: produce.handle,
    apis.FETCH: fetch.handle,
    apis.LIST_OFFSETS: list_offsets.handle,
    apis.METADATA: metadata.handle,
    apis.FIND_COORDINATOR: find_coordinator.handle,
    apis.API_VERSIONS: api_versions.handle,
    apis.CREATE_TOPICS: create_topics.handle,
    apis.DELETE_TOPICS: delete_topics.handle,
    apis.DELETE_RECORDS: delete_records.handle,
    apis.INIT_PRODUCER_ID: init_producer_id.handle,
    apis.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    apis.DESCRIBE_CONFIGS: describe_configs.handle,
    apis.DESCRIBE_CLUSTER: describe_cluster.handle,
}
assert HANDLERS.keys() == apis.APIS.keys(), "advertise exactly what is served"
