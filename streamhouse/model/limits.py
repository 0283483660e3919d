"""Every bound of the process, with its unit. Full means refuse or slow down, never grow."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Kafka door
FRAME_BYTES_MAX = 100 * MIB  # socket.request.max.bytes
FRAME_BYTES_POOLED = 64 * KIB  # frames up to this size share the connection's receive buffer
FRAME_BYTES_TRUSTED = 1 * MIB  # allocated on announcement; beyond it memory follows what came
CONNECTIONS_MAX = 10_000
CONNECTION_IDLE_MS_MAX = 600_000  # connections.max.idle.ms
REQUESTS_IN_FLIGHT_MAX = 64  # per connection; then its socket is not read
RESPONSE_BYTES_BUFFERED_MAX = 4 * MIB  # per connection; then no further request is dispatched
FETCH_BYTES_MAX = 55 * MIB  # fetch.max.bytes of the broker
FETCH_SESSIONS_MAX = 1_000
MESSAGE_BYTES_MAX = 1_048_588  # default of max.message.bytes
DESCRIBED_PARTITIONS_MAX = 2_000  # per page of DescribeTopicPartitions
QUOTA_BUCKETS_MAX = 10_000  # clients whose use is remembered; the longest unused is forgotten
QUOTA_THROTTLE_MS_MAX = 30_000  # one pause; below the patience of clients, debt stays

# Topics
TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_PER_PROCESS_MAX = 100_000

# Write-ahead log
WAL_FILE_BYTES = 64 * MIB
WAL_BYTES_MAX = 1 * GIB  # all files together
WAL_GROUP_BYTES_MAX = 8 * MIB  # one write + fdatasync
WAL_QUEUE_BYTES_MAX = 64 * MIB  # waiting to be written; then sockets are not read

# Partition tail and reads
CHUNK_BYTES_TARGET = 256 * KIB  # batches of one partition kept together; becomes a STRM block
CHUNK_BATCHES_MAX = 4_096
TAIL_BYTES_MAX = 48 * MIB  # hot tail in memory, all partitions; older chunks are read from the WAL
BLOCK_CACHE_BYTES_MAX = 32 * MIB  # decoded blocks of cold reads
COLD_READS_MAX = 4  # object reads under way at once

# Producers
PRODUCER_BATCHES_KEPT = 5
PRODUCER_IDS_PER_BLOCK = 1_000
PRODUCER_IDLE_MS_MAX = 86_400_000  # producer.id.expiration.ms

# Segments
SEGMENT_BYTES_MAX = 100_000_000  # no segment holds more raw bytes than this
ROLL_BYTES_MAX = 32 * MIB  # one roll takes no more, because it is held in memory until it is stored
MERGE_BYTES_SMALL = 8 * MIB  # a segment below this is worth merging
MERGE_SEGMENTS_MIN = 8
DELETE_GRACE_MS = 3_600_000
MANIFEST_INTERVAL_MS = 60_000

# REST
HTTP_BODY_BYTES_MAX = 16 * MIB
HTTP_RECORDS_MAX = 10_000
HTTP_WAIT_MS_MAX = 30_000

# Consumer groups
GROUPS_MAX = 100_000
GROUP_MEMBERS_MAX = 10_000  # group.max.size
SESSION_TIMEOUT_MS_MIN = 6_000  # group.min.session.timeout.ms
SESSION_TIMEOUT_MS_MAX = 1_800_000  # group.max.session.timeout.ms
NEW_MEMBER_JOIN_MS_MAX = 300_000  # a new member that hears nothing for so long must join again
GROUP_INITIAL_REBALANCE_DELAY_MS = 3_000  # group.initial.rebalance.delay.ms
GROUP_WRITE_INTERVAL_MS = 10  # commits and group changes that arrive within it are one transaction
OFFSET_METADATA_BYTES_MAX = 4_096  # offset.metadata.max.bytes
OFFSET_RETENTION_MS = 7 * 24 * 3_600_000  # offsets.retention.minutes
OFFSET_RETENTION_CHECK_MS = 600_000  # offsets.retention.check.interval.ms
