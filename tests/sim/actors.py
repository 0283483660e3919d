"""Who lives in a world: producers, readers, an administrator, an auditor, and bad weather.

Actors stand outside the server: they know what they were told and nothing else. A producer behaves
as Kafka's does: what was not answered is sent again with the same sequence numbers, in order.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamhouse.agent.service import AgentService, Appended, BatchRejected, Partition
from streamhouse.kafka_proto.compression import Compression
from streamhouse.kafka_proto.errors import ErrorCode
from streamhouse.kafka_proto.record_batch import encode_batch
from streamhouse.model.errors import (
    AlreadyExists,
    Fenced,
    NotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    Unavailable,
)
from streamhouse.model.ids import TopicId, TopicPartition
from streamhouse.model.records import NewRecord
from streamhouse.model.topic import Topic, TopicSpec
from streamhouse.objects.faulty import FaultRates
from tests.sim.checkers import SentBatch, Violation
from tests.sim.process import Disconnected, End, Process
from tests.sim.world import World

IN_FLIGHT_MAX = 5
ANSWER_LOST_RATE = 0.02
SEQUENCE_MODULUS = 2**31
CODECS = (Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD)
NOT_NOW = (Disconnected, Unavailable, OutcomeUnknown, NotFound, Fenced)


@dataclass(slots=True)
class Scene:
    """What the actors share: which topics there are meant to be, and whether to go on."""

    topics: dict[str, Topic] = field(default_factory=dict)
    gone: set[TopicId] = field(default_factory=set)  # deletion was asked for
    sending: bool = True  # producers make new batches
    unsent: int = 0  # batches waiting for an acknowledgement they will get
    stopping: bool = False

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.topic_id, number)
            for topic in self.topics.values()
            for number in range(topic.partition_count)
        ]


def find(service: AgentService, tp: TopicPartition) -> Partition:
    partition = service.catalog.partitions.get(tp)
    if partition is None:
        raise NotFound(f"{tp} is not known")
    return partition


class BatchMaker:
    """Batches with contents that no other batch has."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._chance = world.fork(f"batches of {name}")
        self._name = name
        self._made = 0

    def make(
        self,
        tp: TopicPartition,
        topic: Topic,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequence: int = -1,
    ) -> SentBatch:
        chance, now_ms = self._chance, self._world.clock.now_ms()
        self._made += 1
        uid = f"{self._name}.{self._made}"
        filler_bytes = chance.randrange(self._world.plan.batch_bytes_max)
        count = chance.choice((1, 1, 2, 5))
        records = []
        for index in range(count):
            filler = chance.randbytes(filler_bytes // count)
            time_ms = now_ms - chance.choice((0, 0, 0, 1, 50, 5_000))
            key = chance.choice((None, b"k%d" % chance.randrange(4)))
            records.append(NewRecord(key, f"{uid} {index} ".encode() + filler, (), time_ms))
        codec = chance.choice(
            (Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD)
        )
        body = encode_batch(
            records,
            now_ms,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        batch = SentBatch(
            uid, tp, tuple(records), bytes(body), self._name, topic.settings.log_append_time
        )
        self._world.checker.on_send(batch)
        return batch


async def send(world: World, process: Process, batch: SentBatch, acks: int) -> None:
    """One produce request, as the Kafka door performs it. Returns when it was acknowledged."""

    async def handle(service: AgentService) -> tuple[Appended, int]:
        partition = find(service, batch.tp)
        try:
            appended = service.append(partition, memoryview(bytearray(batch.body)), acks)
        except Unavailable:
            world.count("refused for room")
            raise
        durable = service.when_durable(appended.sequence) if acks else None
        if durable is not None:
            await durable
        # Whoever waits for a topic that is being deleted is answered without a watermark.
        return appended, 2**62 if partition.closed else partition.machine.high_watermark

    appended, hw = await process.call(handle)
    if acks:
        world.count("acks")
        world.note(f"ack {batch.uid} at {appended.base_offset}")
        world.checker.on_ack(
            batch, appended.base_offset, appended.log_append_time_ms, world.clock.now_ms(), hw
        )


class IdempotentProducer:
    """Up to five batches in flight to one partition; everything is sent until acknowledged."""

    def __init__(self, world: World, scene: Scene, name: str, tp: TopicPartition) -> None:
        self._world = world
        self._scene = scene
        self._chance = world.fork(f"producer {name}")
        self._maker = BatchMaker(world, name)
        self._name = name
        self._tp = tp
        self._producer_id = -1
        self._epoch = 0
        self._sequence = self._chance.choice((0, 0, SEQUENCE_MODULUS - 7))
        self._pending: deque[SentBatch] = deque()
        self._known = False  # the partition has taken a batch of this producer

    async def run(self) -> None:
        world, scene = self._world, self._scene
        while not scene.stopping:
            process = await world.serving()
            try:
                if self._producer_id < 0:
                    self._producer_id = await process.call(lambda s: s.new_producer_id())
                self._refill()
                if self._pending:
                    await self._send_all(process)
            except NOT_NOW:
                world.count("produce retries")
                if self._tp.topic_id in scene.gone:
                    self._give_up()
                    return
            pause_s = self._chance.expovariate(1 / world.plan.send_gap_s)
            await asyncio.sleep(min(pause_s, 5 * world.plan.send_gap_s))

    def _refill(self) -> None:
        topic = self._topic()
        if topic is None or not self._scene.sending:
            return
        if not self._pending and self._chance.random() < 0.01:
            self._epoch, self._sequence = self._epoch + 1, 0
        for _ in range(self._wanted()):
            batch = self._maker.make(
                self._tp,
                topic,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                sequence=self._sequence,
            )
            self._sequence = (self._sequence + batch.count) % SEQUENCE_MODULUS
            self._pending.append(batch)
            self._scene.unsent += 1

    def _wanted(self) -> int:
        if not self._known:
            # A leader takes any first sequence of a producer it does not know, so a second batch
            # could be taken although the first was refused.
            return 1 - len(self._pending)
        room = IN_FLIGHT_MAX - len(self._pending)
        return self._chance.randint(1, room) if room else 0

    def _topic(self) -> Topic | None:
        for topic in self._scene.topics.values():
            if topic.topic_id == self._tp.topic_id:
                return topic
        return None

    def _give_up(self) -> None:
        self._scene.unsent -= len(self._pending)
        self._pending.clear()

    async def _send_all(self, process: Process) -> None:
        """All that is pending, one after the other without waiting, then the answers in order."""
        sends = [
            asyncio.ensure_future(send(self._world, process, batch, -1)) for batch in self._pending
        ]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Violation):
                raise answer
        first = True
        for answer in answers:
            if answer is None and self._chance.random() < ANSWER_LOST_RATE:
                answer = Disconnected()  # it was acknowledged, but the client never heard
            if answer is not None:
                self._judge(answer, first=first)
                raise Disconnected
            self._pending.popleft()
            self._scene.unsent -= 1
            self._known = True
            first = False

    def _judge(self, answer: BaseException, *, first: bool) -> None:
        """The first refusal must be one that a repeat can get past; the rest follow from it."""
        if isinstance(answer, NOT_NOW) or not isinstance(answer, Exception):
            return
        if isinstance(answer, BatchRejected):
            follows = answer.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if follows and not first:
                return
            self._world.fail("8 idempotence", f"{self._pending[0].uid} refused: {answer}")
        raise answer


class PlainProducer:
    """Without sequence numbers: what is not answered is not repeated. Writes everywhere."""

    def __init__(self, world: World, scene: Scene, name: str) -> None:
        self._world = world
        self._scene = scene
        self._chance = world.fork(f"producer {name}")
        self._name = name
        self._made = 0

    async def run(self) -> None:
        world, scene, chance = self._world, self._scene, self._chance
        while scene.sending:
            await asyncio.sleep(chance.expovariate(1 / (2 * world.plan.send_gap_s)))
            process = await world.serving()
            if not scene.topics:
                continue
            topic = chance.choice(list(scene.topics.values()))
            tp = TopicPartition(topic.topic_id, chance.randrange(topic.partition_count))
            self._made += 1
            # Each batch has a sender of its own: without retries there is no order to keep.
            batch = BatchMaker(world, f"{self._name}-{self._made}").make(tp, topic)
            try:
                await send(world, process, batch, chance.choice((-1, -1, 1, 0)))
            except NOT_NOW:
                world.count("produce failures")


class Reader:
    """Follows the log of one partition after another, and jumps about in it."""

    def __init__(self, world: World, scene: Scene, name: str) -> None:
        self._world = world
        self._scene = scene
        self._chance = world.fork(f"reader {name}")
        self._position: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        world, scene, chance = self._world, self._scene, self._chance
        while not scene.stopping:
            await asyncio.sleep(chance.expovariate(1 / 0.15))
            process = await world.serving()
            tps = scene.partitions()
            if not tps:
                continue
            tp = chance.choice(tps)
            try:
                await chance.choice((self._follow, self._follow, self._jump, self._ask))(
                    process, tp
                )
            except NOT_NOW:
                world.count("read failures")

    async def _follow(self, process: Process, tp: TopicPartition) -> None:
        offset = self._position.get(tp, 0)
        self._position[tp] = await self._read(process, tp, offset)

    async def _jump(self, process: Process, tp: TopicPartition) -> None:
        log = self._world.checker.log(tp)
        offset = self._chance.randint(0, log.hw + 2)
        await self._read(process, tp, offset)

    async def _read(self, process: Process, tp: TopicPartition, offset: int) -> int:
        """Read once; return where to go on."""
        world = self._world
        bytes_max = self._chance.choice((1, 2_000, 20_000))

        async def handle(service: AgentService) -> int:
            partition = find(service, tp)
            positions(world, partition)
            asked_hw = partition.machine.high_watermark
            try:
                buffers = await service.read(partition, offset, bytes_max=bytes_max)
            except OffsetOutOfRange as error:
                world.checker.on_out_of_range(tp, error, asked_hw)
                world.count("out of range")
                return max(error.log_start, min(offset, error.high_watermark))
            if partition.closed:
                return offset
            hw = partition.machine.high_watermark
            return world.checker.on_read(tp, offset, buffers, hw, asked_hw)

        found = await process.call(handle)
        world.count("reads")
        world.note(f"read {tp.partition} {offset} -> {found}")
        return found

    async def _ask(self, process: Process, tp: TopicPartition) -> None:
        """ListOffsets and OffsetForLeaderEpoch."""
        world, chance = self._world, self._chance
        known = world.checker.known_times(tp)
        time_ms = world.clock.now_ms() - chance.randrange(20_000)
        if known and chance.random() < 0.5:
            time_ms = chance.choice(sorted(known.values()))

        async def handle(service: AgentService) -> None:
            partition = find(service, tp)
            positions(world, partition)
            known = world.checker.known_times(tp)
            found = await service.offset_at(partition, time_ms, True)
            start = partition.machine.log_start
            if not partition.closed:
                world.checker.on_found_time(tp, time_ms, found, known, start)
            latest = await service.offset_latest_timestamp(partition, True)
            start = partition.machine.log_start
            if not partition.closed:
                world.checker.on_latest_time(tp, latest, known, start)
            epoch = chance.randint(0, partition.machine.epoch)
            ended = partition.machine.end_of_epoch(epoch)
            world.checker.on_end_of_epoch(tp, epoch, ended)

        await process.call(handle)
        world.count("time lookups")


class Follower:
    """Waits at the end of one partition for new records, one by one as REST shows them."""

    def __init__(self, world: World, scene: Scene, name: str) -> None:
        self._world = world
        self._scene = scene
        self._name = name
        self._chance = world.fork(f"follower {name}")

    async def run(self) -> None:
        world, scene = self._world, self._scene
        offsets: dict[TopicPartition, int] = {}
        while not scene.stopping:
            await asyncio.sleep(0.1)
            process = await world.serving()
            topics = list(scene.topics.values())
            if not topics:
                continue
            topic = self._chance.choice(topics)
            number = self._chance.randrange(topic.partition_count)
            tp = TopicPartition(topic.topic_id, number)
            try:
                offsets[tp] = await self._consume(process, topic, tp, offsets.get(tp, 0))
            except NOT_NOW:
                world.count("read failures")

    async def _consume(
        self, process: Process, topic: Topic, tp: TopicPartition, offset: int
    ) -> int:
        world = self._world
        records_max, wait_ms = self._chance.choice((1, 7, 50)), self._chance.choice((0, 300))

        async def handle(service: AgentService) -> int:
            partition = find(service, tp)
            asked_hw = partition.machine.high_watermark
            try:
                found = await service.consume_records(
                    topic.name, tp.partition, offset, records_max=records_max, wait_ms=wait_ms
                )
            except OffsetOutOfRange as error:
                world.checker.on_out_of_range(tp, error, asked_hw)
                return max(error.log_start, min(offset, error.high_watermark))
            world.checker.on_records(tp, offset, found.records)
            if offset < asked_hw and not found.records and not partition.closed:
                world.fail("1 acked is read", f"{tp} {offset} shows no record below {asked_hw}")
            return found.next_offset

        found = await process.call(handle)
        world.count("record reads")
        return found


def positions(world: World, partition: Partition) -> None:
    machine = partition.machine
    world.checker.on_positions(
        machine.tp,
        hw=machine.high_watermark,
        log_start=machine.log_start,
        epoch=machine.epoch,
        now_ms=world.clock.now_ms(),
    )


class Administrator:
    """Creates and deletes topics, deletes records, changes retention."""

    def __init__(self, world: World, scene: Scene) -> None:
        self._world = world
        self._scene = scene
        self._chance = world.fork("administrator")
        self._producers = 0

    async def set_up(self) -> None:
        for number in range(self._world.plan.topics):
            while not await self._create(f"topic-{number}"):
                await asyncio.sleep(0.2)

    async def run(self) -> None:
        world, scene, chance = self._world, self._scene, self._chance
        while scene.sending:
            await asyncio.sleep(chance.expovariate(1 / 2.0))
            if not scene.sending:
                return
            job = chance.choice(
                (self._delete_records, self._delete_records, self._alter, self._replace_topic)
            )
            try:
                await job()
            except NOT_NOW:
                world.count("admin failures")

    async def _create(self, name: str) -> bool:
        """True once the topic exists; a producer for each of its partitions comes with it."""
        world = self._world
        spec = TopicSpec(name, self._chance.randint(1, world.plan.partitions_max), self._config())
        process = await world.serving()
        try:
            topic = await process.call(lambda service: service.create_topic(spec))
        except AlreadyExists:
            found = await self._existing(name)
            if found is None:
                return False
            topic = found
        except NOT_NOW:
            return False
        self._scene.topics[name] = topic
        world.count("topics created")
        for number in range(topic.partition_count):
            tp = TopicPartition(topic.topic_id, number)
            self._expect_config(tp, topic.config)
            for _ in range(self._chance.randint(1, 2)):
                self._producers += 1
                producer = IdempotentProducer(world, self._scene, f"i{self._producers}", tp)
                world.spawn(producer.run())
        return True

    async def _existing(self, name: str) -> Topic | None:
        async def handle(service: AgentService) -> Topic | None:
            return service.catalog.find(name)

        try:
            return await (await self._world.serving()).call(handle)
        except Disconnected:
            return None

    def _config(self) -> dict[str, str]:
        chance = self._chance
        config: dict[str, str] = {}
        if chance.random() < 0.3:
            config["retention.ms"] = str(chance.choice((1_500, 6_000)))
        elif chance.random() < 0.2:
            config["retention.bytes"] = str(chance.choice((5_000, 30_000)))
        if chance.random() < 0.2:
            config["message.timestamp.type"] = "LogAppendTime"
        if chance.random() < 0.2:
            config["segment.bytes"] = "1024"
        return config

    def _expect_config(self, tp: TopicPartition, config: object) -> None:
        assert isinstance(config, dict)
        log = self._world.checker.log(tp)
        if "retention.ms" in config:
            value = int(config["retention.ms"])
            log.retention_ms_min = min(log.retention_ms_min or value, value)
        if "retention.bytes" in config:
            value = int(config["retention.bytes"])
            log.retention_bytes_min = min(log.retention_bytes_min or value, value)

    async def _delete_records(self) -> None:
        world = self._world
        tps = self._scene.partitions()
        if not tps:
            return
        tp = self._chance.choice(tps)
        share = self._chance.random()
        process = await world.serving()

        async def handle(service: AgentService) -> None:
            partition = find(service, tp)
            machine, log = partition.machine, world.checker.log(tp)
            target = machine.log_start + int((machine.high_watermark - machine.log_start) * share)
            log.deletable = max(log.deletable, target)
            start = await service.delete_records(partition, target)
            if start < target:
                world.fail("4 monotonic", f"{tp} deleted up to {target}, log starts at {start}")
            log.log_start = max(log.log_start, target)

        await process.call(handle)
        world.count("records deleted")

    async def _alter(self) -> None:
        topics = list(self._scene.topics.values())
        if not topics:
            return
        topic = self._chance.choice(topics)
        config = {k: v for k, v in topic.config.items() if not k.startswith("retention")}
        config |= {k: v for k, v in self._config().items() if k.startswith("retention")}
        for number in range(topic.partition_count):
            self._expect_config(TopicPartition(topic.topic_id, number), config)
        process = await self._world.serving()
        altered = await process.call(lambda service: service.set_topic_config(topic, config))
        if self._scene.topics.get(topic.name) is topic:
            self._scene.topics[topic.name] = altered

    async def _replace_topic(self) -> None:
        """Delete a topic, and make one of the same name again."""
        world, scene = self._world, self._scene
        if not scene.topics or self._chance.random() < 0.5:
            return
        topic = self._chance.choice(list(scene.topics.values()))
        scene.gone.add(topic.topic_id)
        del scene.topics[topic.name]
        while True:
            process = await world.serving()
            try:
                await process.call(lambda service: service.delete_topic(topic.topic_id))
                break
            except NotFound:
                break
            except NOT_NOW:
                await asyncio.sleep(0.3)
        world.count("topics deleted")
        while not await self._create(topic.name):
            await asyncio.sleep(0.3)


class Auditor:
    """Looks at bounds and at the bucket every now and then."""

    def __init__(self, world: World, scene: Scene) -> None:
        self._world = world
        self._scene = scene

    async def run(self) -> None:
        turn = 0
        while not self._scene.stopping:
            await asyncio.sleep(0.37)
            self._world.check_bounds()
            turn += 1
            if turn % 12 == 0:
                self._world.check_bucket()


class Storm:
    """Changes the weather until it is told to stop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.fork("storm")

    async def run(self, seconds: float) -> None:
        world, chance = self._world, self._chance
        end_s = world.clock.monotonic() + seconds
        while world.clock.monotonic() < end_s:
            kind = chance.choice(KINDS)
            world.note(f"weather {kind}")
            world.count(f"weather {kind}")
            await getattr(self, f"_{kind}")()
            await asyncio.sleep(chance.expovariate(1 / world.plan.gust_s_mean))
            self._clear()

    def _clear(self) -> None:
        world = self._world
        world.weather.slow_sync_s = world.weather.slow_read_s = 0.0
        world.set_disk_full(False)
        world.object_faults.rates = world.metadata_faults.rates = FaultRates()

    def _rates(self) -> FaultRates:
        chance, delay_s = self._chance, self._world.plan.delay_s_max
        return chance.choice(
            (
                FaultRates(refused=1.0),
                FaultRates(refused=0.4, request_lost=0.1, answer_lost=0.1),
                FaultRates(answer_lost=1.0),
                FaultRates(request_lost=0.5, answer_lost=0.5),
                FaultRates(delayed=1.0, delay_s_max=delay_s),
                FaultRates(refused=0.1, answer_lost=0.2, delayed=0.5, delay_s_max=delay_s),
            )
        )

    async def _calm(self) -> None:
        return None

    async def _objects(self) -> None:
        self._world.object_faults.rates = self._rates()

    async def _metadata(self) -> None:
        self._world.metadata_faults.rates = self._rates()

    async def _both(self) -> None:
        await self._objects()
        await self._metadata()

    async def _outage(self) -> None:
        """The object store is away for long: the WAL fills up."""
        self._world.object_faults.rates = FaultRates(refused=1.0)
        await asyncio.sleep(self._chance.choice((5.0, 15.0)))

    async def _slow_sync(self) -> None:
        self._world.weather.slow_sync_s = self._chance.choice((0.02, 0.2, 1.0))

    async def _slow_reads(self) -> None:
        """Some reads outlast the grace period of what they read."""
        self._world.weather.slow_read_s = min(self._world.plan.delete_grace_ms / 1000 * 4, 40.0)
        await asyncio.sleep(2 * self._world.plan.delete_grace_ms / 1000)

    async def _failing_sync(self) -> None:
        self._world.fail_next_sync()

    async def _full_disk(self) -> None:
        self._world.set_disk_full(True)

    async def _kill(self) -> None:
        if self._world.process is not None:
            self._world.process.end(self._chance.choice((End.KILLED, End.POWER_LOST)))

    async def _restart(self) -> None:
        process = self._world.process
        if process is not None and process.serving:
            await process.stop()


KINDS: Sequence[str] = (
    "calm",
    "objects",
    "metadata",
    "both",
    "outage",
    "slow_sync",
    "slow_reads",
    "failing_sync",
    "full_disk",
    "kill",
    "kill",
    "restart",
)


def cast(world: World, scene: Scene) -> random.Random:
    """Everybody but the administrator and the storm."""
    for number in range(world.plan.producers):
        world.spawn(PlainProducer(world, scene, f"p{number}").run())
    for number in range(world.plan.readers):
        world.spawn(Reader(world, scene, f"r{number}").run())
    # One only: the order in which several waiters of a partition wake is not defined.
    world.spawn(Follower(world, scene, "f0").run())
    world.spawn(Auditor(world, scene).run())
    return world.fork("cast")
