"""Apache Kafka as the other side of the comparison: fetched once, then one KRaft node.

Owns: the jars (resolved by Maven into the project's cache), the node's configuration, its command.
Kafka keeps its defaults. What is set is what a single node on loopback cannot do without, and the
JVM gets the heap and the options that Kafka's own start script gives it.
"""

import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.process import Launch, accepts, free_port

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "kafka"

# What kafka-server-start.sh and kafka-run-class.sh use when nothing else is asked for.
JVM_HEAP = ("-Xmx1G", "-Xms1G")
JVM_PERFORMANCE = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# Kafka's jar names log4j but not the bridge from slf4j to it; without the bridge it logs nothing.
POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>streamhouse.bench</groupId>
<artifactId>kafka-classpath</artifactId>
<version>1</version>
<packaging>pom</packaging>
<dependencies>
<dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{kafka}</version>
</dependency>
<dependency>
<groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
<version>{log4j}</version><scope>runtime</scope>
</dependency>
</dependencies>
</project>
"""

LOG4J = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""

CONFIG = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={log_dirs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class KafkaAbsent(Exception):
    """Kafka cannot run here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A fetched Kafka that can be started on any number of directories."""

    jars: Path
    version: str
    name: str = "kafka"

    def prepare(self, directory: Path) -> None:
        """Format an empty directory. Not part of any measured start."""
        directory.mkdir(parents=True)
        config = directory / "server.properties"
        config.write_text(
            CONFIG.format(
                port=free_port(), controller_port=free_port(), log_dirs=directory / "logs"
            )
        )
        (directory / "log4j2.properties").write_text(LOG4J)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [
                *self._java(directory, ()),
                "kafka.tools.StorageTool",
                *("format", "--standalone", "-t", cluster_id, "-c", str(config)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KafkaAbsent(f"storage could not be formatted: {done.stdout}{done.stderr}")

    def launch(self, directory: Path, env: Mapping[str, str] | None = None) -> Launch:
        """Describe a start on a prepared directory; `env` is added to the environment."""
        config = directory / "server.properties"
        address = _listener_address(config)
        return Launch(
            command=[
                *self._java(directory, (*JVM_HEAP, *JVM_PERFORMANCE)),
                *("kafka.Kafka", str(config)),
            ],
            env={**os.environ, **(env or {})},
            directory=directory,
            address=address,
            is_ready=lambda: accepts(address),
        )

    def settings(self) -> str:
        return (
            f"single KRaft node, default settings, {' '.join(JVM_HEAP)}, G1 as in its start script"
        )

    def _java(self, directory: Path, options: tuple[str, ...]) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
        return ["java", *options, log4j, "-cp", f"{self.jars}/*"]


def fetch_kafka(version: str = KAFKA_VERSION) -> Kafka:
    """Resolve Kafka with its runtime dependencies, once; later calls find them in the cache.

    Raises: KafkaAbsent when java or Maven is missing or the jars cannot be had.
    """
    if shutil.which("java") is None:
        raise KafkaAbsent("java is not installed")
    jars = CACHE / version / "jars"
    if not (jars.parent / "complete").exists():
        _resolve(jars, version)
        (jars.parent / "complete").touch()
    return Kafka(jars=jars, version=version)


def _resolve(jars: Path, version: str) -> None:
    if shutil.which("mvn") is None:
        raise KafkaAbsent("Maven (mvn) is not installed")
    jars.parent.mkdir(parents=True, exist_ok=True)
    pom = jars.parent / "pom.xml"
    pom.write_text(POM.format(kafka=version, log4j=LOG4J_VERSION))
    done = subprocess.run(
        [
            *("mvn", "--batch-mode", "--no-transfer-progress", "--file", str(pom)),
            *("dependency:copy-dependencies", "-DincludeScope=runtime"),
            f"-DoutputDirectory={jars}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise KafkaAbsent(f"Maven could not resolve Kafka {version}: {done.stdout[-800:]}")


def _listener_address(config: Path) -> str:
    for line in config.read_text().splitlines():
        if line.startswith("advertised.listeners="):
            return line.rpartition("//")[2]
    raise AssertionError(f"{config} has no listener")
