"""Apache Kafka's own command line tools, fetched once by Maven into the project's cache."""

import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.1"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka-tools" / KAFKA_VERSION
FETCH_SECONDS_MAX = 300
RUN_SECONDS_MAX = 60

# The newer tools are in one jar, kafka-configs still in Kafka's core.
POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>streamhouse.tests</groupId>
<artifactId>kafka-tools-classpath</artifactId>
<version>1</version>
<packaging>pom</packaging>
<dependencies>
<dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
</dependency>
<dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
</dependency>
</dependencies>
</project>
"""


def fetch_or_skip() -> Path:
    """The directory of jars; skips the test where Java or the jars cannot be had."""
    jars = CACHE / "jars"
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not (CACHE / "complete").exists():
        if shutil.which("mvn") is None:
            pytest.skip("Maven (mvn) is not installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        pom = CACHE / "pom.xml"
        pom.write_text(POM.format(version=KAFKA_VERSION))
        done = subprocess.run(
            [
                *("mvn", "--batch-mode", "--no-transfer-progress", "--file", str(pom)),
                *("dependency:copy-dependencies", "-DincludeScope=runtime"),
                f"-DoutputDirectory={jars}",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS_MAX,
        )
        if done.returncode != 0:
            pytest.skip(f"Maven could not resolve Kafka's tools: {done.stdout[-300:]}")
        (CACHE / "complete").touch()
    return jars


class JavaTools:
    """Runs a tool's main class against one server."""

    def __init__(self, jars: Path, address: str) -> None:
        self._jars = jars
        self._address = address

    def run(self, main: str, *arguments: str, address_last: bool = False) -> str:
        """What the tool prints, on both outputs; its exit code is not looked at."""
        address = ["--bootstrap-server", self._address]
        ordered = [*arguments, *address] if address_last else [*address, *arguments]
        done = subprocess.run(
            [
                *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*"),
                main,
                *ordered,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS_MAX,
        )
        return done.stdout + done.stderr
