"""Reading the bucket alone, as Spark or a disaster recovery would: manifests and segments only."""

from collections.abc import Mapping

from streamhouse.kafka_proto.record_batch import iter_batches
from streamhouse.model.ids import ObjectKey, TopicPartition
from streamhouse.model.keys import manifest_prefix
from streamhouse.model.partition import SegmentRef
from streamhouse.segment.decode import check_ref, decode_block, verify_segment
from streamhouse.segment.manifest import Manifest, decode_manifest, join_pages

Bucket = Mapping[ObjectKey, bytes]


def newest_manifest(bucket: Bucket, tp: TopicPartition) -> Manifest | None:
    prefix = manifest_prefix(tp)
    keys = sorted(key for key in bucket if key.startswith(prefix))
    if not keys:
        return None
    head = decode_manifest(bucket[keys[-1]])
    return join_pages(head, {page.key: bucket[page.key] for page in head.pages})


def verify_object(bucket: Bucket, tp: TopicPartition, ref: SegmentRef) -> str | None:
    """What is wrong with a registered segment, or None."""
    body = bucket.get(ref.key)
    if body is None:
        return f"{ref.key} is registered but does not exist"
    if len(body) != ref.bytes_stored:
        return f"{ref.key} has {len(body)} bytes, {ref.bytes_stored} were registered"
    check_ref(verify_segment(body), tp, ref)
    return None


def read_bucket(bucket: Bucket, manifest: Manifest) -> list[bytes]:
    """All batches that reach into [log_start, stable_end), in order."""
    found: list[bytes] = []
    for segment in manifest.segments:
        if segment.end <= manifest.log_start or segment.base >= manifest.stable_end:
            continue
        body = bucket[segment.key]
        for entry in verify_segment(body).blocks:
            raw = decode_block(entry, body[entry.position : entry.stop])
            view = memoryview(raw)
            for position, header in iter_batches(view):
                if header.end_offset > manifest.log_start:
                    found.append(bytes(view[position : position + header.size_bytes]))
    return found
