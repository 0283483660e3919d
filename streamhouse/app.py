"""The composition root: picks concrete adapters, starts the parts in order, stops them in reverse.

The only file that knows which store is behind a port. Everything a process does is started here or
by a service that is.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from streamhouse import __version__
from streamhouse.agent.service import AgentOptions, AgentPorts, AgentService
from streamhouse.data_dir import DataDirectory
from streamhouse.groups.service import GroupOptions, GroupService
from streamhouse.metadata.sqlite import SqliteMetadata
from streamhouse.metrics.exposition import MetricSources, render
from streamhouse.model.errors import Invalid, StartRefused
from streamhouse.model.limits import FETCH_SESSIONS_MAX
from streamhouse.model.settings import Settings, split_address
from streamhouse.objects.open import open_store
from streamhouse.ports.metadata import MetadataStore
from streamhouse.ports.objects import OwnedObjectStore
from streamhouse.server.grpc.server import GrpcServer
from streamhouse.server.health import Health
from streamhouse.server.http.app import build_http, http_runner
from streamhouse.server.http.parts import AgentIdentity, HttpCounters, HttpParts
from streamhouse.server.kafka.broker_settings import BrokerSettings
from streamhouse.server.kafka.door import BrokerAddress, Door
from streamhouse.server.kafka.fetch_sessions import FetchSessions
from streamhouse.server.kafka.listener import KafkaListener
from streamhouse.server.kafka.quotas import ClientQuotas
from streamhouse.system import SystemClock, SystemIds, ThreadWorkers, settle_heap, tune_process
from streamhouse.wal.file_wal import FileWal
from streamhouse.wal.os_disk import OsDisk
from streamhouse.wal.recovery import WalOptions

log = logging.getLogger("streamhouse")

EXIT_FATAL = 70

T = TypeVar("T")


def run_server(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises StartRefused, Invalid."""
    _configure_logging(settings.log_level)
    tune_process()
    return _event_loop_run(_serve(settings))


def _event_loop_run(main: Coroutine[None, None, int]) -> int:
    try:
        import uvloop
    except ImportError:  # not on every platform; asyncio's own loop serves as well
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _configure_logging(level: str) -> None:
    known = logging.getLevelNamesMapping().get(level.upper())
    if known is None:
        raise Invalid(f"log level {level!r} is unknown; use debug, info, warning or error")
    logging.basicConfig(
        level=known, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


async def _serve(settings: Settings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        await start_server(settings, stack)
        await stopping.wait()
        log.info("stopping: flushing what is not yet in segments")
    log.info("stopped")
    return 0


@dataclass(frozen=True, slots=True)
class RunningServer:
    agent: AgentService
    endpoints: dict[str, str]


async def start_server(settings: Settings, stack: AsyncExitStack) -> RunningServer:
    """Start every part; `stack` stops them again. Raises StartRefused."""
    clock, ids = SystemClock(), SystemIds()
    data = DataDirectory(Path(settings.data_dir))
    data.open()
    stack.callback(data.close)
    metadata = await _open_metadata(settings, data.path, ids)
    stack.push_async_callback(metadata.close)
    objects = await open_objects(settings.object_store_url or _local_store(data.path))
    stack.push_async_callback(objects.close)
    disk = OsDisk(data.path / "wal")
    stack.callback(disk.close)
    workers = ThreadWorkers()
    stack.callback(workers.close)
    wal = FileWal(
        disk,
        ids,
        WalOptions(
            bytes_max=settings.wal_max_bytes,
            batch_max_age_ms=settings.wal_batch_max_age_ms,
            accept_loss=settings.accept_wal_loss,
        ),
    )
    options = _agent_options(settings, data.agent_id(settings.agent_id, ids), ids.nonce())
    ports = AgentPorts(metadata, objects, wal, workers, clock, ids)
    agent = AgentService(ports, options, on_fatal=_die)
    broker_settings = BrokerSettings(metadata, agent)
    await broker_settings.load()  # before anything acts on a default
    await agent.start()
    stack.push_async_callback(agent.stop)

    quotas = ClientQuotas(metadata, clock)
    await quotas.load()
    groups = GroupService(
        metadata,
        clock,
        ids,
        GroupOptions(initial_delay_ms=settings.group_initial_rebalance_delay_ms),
        on_fatal=_die,
    )
    await groups.start()
    stack.push_async_callback(groups.stop)

    door = Door(
        agent=agent,
        groups=groups,
        clock=clock,
        sessions=FetchSessions(FETCH_SESSIONS_MAX),
        cluster_id=await metadata.cluster_id(),
        advertised=_advertised(settings),
        rack=settings.agent_zone or None,
        auto_create_topics=settings.auto_create_topics,
        default_partitions=settings.default_partitions,
        quotas=quotas,
        broker_settings=broker_settings,
        topic_defaults={
            "segment.bytes": str(settings.segment_max_size),
            "segment.ms": str(settings.segment_max_age_ms),
        },
        log_dir=str(data.path.resolve()),
        connection_idle_ms=settings.connection_idle_ms,
        partitions_growable=settings.topic_partitions_growable,
    )
    listener = KafkaListener(
        door,
        clock,
        connections_max=settings.max_connections,
        idle_ms_max=settings.connection_idle_ms,
    )
    endpoints: dict[str, str] = {}
    counters = HttpCounters()
    sources = MetricSources(agent=agent, wal=wal, kafka=listener, http=counters)
    parts = HttpParts(
        agent=agent,
        groups=groups,
        metadata=metadata,
        settings=settings,
        identity=AgentIdentity(options.agent_id, __version__, clock.now_ms(), settings.agent_zone),
        clock=clock,
        health=lambda: Health(ready=bool(endpoints), problems=tuple(agent.problems())),
        render_metrics=lambda: render(sources),
        endpoints=lambda: endpoints,
        counters=counters,
    )
    runner = http_runner(build_http(parts))
    bound = {
        "http": await _start_http(runner, settings.http_addr, stack),
        "grpc": await _start_grpc(settings.grpc_addr, stack),
        "kafka": await _start_kafka(listener, settings.kafka_addr, stack),
    }
    settle_heap()
    endpoints.update(bound)
    stack.callback(endpoints.clear)  # not ready any more from the first step of stopping
    data.write_endpoints(bound)
    log.info("ready: %s", ", ".join(f"{door} on {where}" for door, where in bound.items()))
    return RunningServer(agent, bound)


async def open_objects(url: str) -> OwnedObjectStore:
    """The object store behind a URL."""
    return await open_store(url)


async def _open_metadata(settings: Settings, data: Path, ids: SystemIds) -> MetadataStore:
    if settings.database_url:
        raise Invalid(
            f"DATABASE_URL={settings.database_url!r}: only the embedded SQLite store is served by "
            f"this version; leave it unset"
        )
    return await SqliteMetadata.open(data / "metadata.sqlite", ids=ids)


def _local_store(data: Path) -> str:
    return (data / "objects").resolve().as_uri()


def _agent_options(settings: Settings, agent_id: str, incarnation: str) -> AgentOptions:
    return AgentOptions(
        agent_id=agent_id,
        incarnation=incarnation,
        segment_max_size=settings.segment_max_size,
        segment_max_age_ms=settings.segment_max_age_ms,
        tail_bytes_max=settings.tail_max_bytes,
        block_cache_bytes_max=settings.cache_max_bytes,
        retention_check_interval_ms=settings.retention_check_interval_ms,
        manifest_interval_ms=settings.manifest_interval_ms,
        delete_grace_ms=settings.delete_grace_ms,
        accept_wal_loss=settings.accept_wal_loss,
    )


def _advertised(settings: Settings) -> BrokerAddress | None:
    if not settings.kafka_advertised:
        return None
    return BrokerAddress(*split_address(settings.kafka_advertised))


async def _start_http(runner: web.AppRunner, address: str, stack: AsyncExitStack) -> str:
    host, port = split_address(address)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, host, port)
    await _bound("HTTP", address, site.start)
    return _text(*runner.addresses[0][:2])


async def _start_grpc(address: str, stack: AsyncExitStack) -> str:
    host, port = split_address(address)
    server = GrpcServer()
    bound = await _bound("gRPC", address, lambda: server.start(host, port))
    stack.push_async_callback(server.stop)
    await server.set_ready(True)
    return _text(host, bound)


async def _start_kafka(listener: KafkaListener, address: str, stack: AsyncExitStack) -> str:
    host, port = split_address(address)
    bound = await _bound("Kafka", address, lambda: listener.start(host, port))
    stack.push_async_callback(listener.stop)
    return _text(*bound)


async def _bound(door: str, address: str, start: Callable[[], Awaitable[T]]) -> T:
    """Bind a door, or say which address was the trouble."""
    try:
        return await start()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise StartRefused(
            f"cannot listen for {door} on {address}: {why}. "
            f"Stop what listens there, or choose another address"
        ) from error


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _die(error: BaseException) -> None:
    """A failed WAL write, or a background task that broke: stop now, acknowledge nothing more."""
    log.critical("ending the process: %s: %s", type(error).__name__, error)
    logging.shutdown()
    os._exit(EXIT_FATAL)
