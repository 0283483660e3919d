"""Tables of README and docs that are made from the code, so that they cannot say something else.

`python -m tests.house.generated` says which are out of date; with `--write` it rewrites them. A
table stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamhouse.kafka_proto import apis
from streamhouse.metrics.agent_metrics import agent_metrics
from streamhouse.metrics.door_metrics import http_metrics, kafka_metrics
from streamhouse.metrics.family import Kind, Metric
from streamhouse.model import limits
from streamhouse.model.broker_settings import DYNAMIC_CONFIGS
from streamhouse.model.quotas import QUOTA_KEYS
from streamhouse.model.settings import SETTINGS
from streamhouse.model.topic import TOPIC_CONFIGS

ROOT = Path(__file__).resolve().parents[2]

_SECTION = re.compile(r"^# (?P<title>.+)$")
_LIMIT = re.compile(r"^(?P<name>[A-Z_]+) = [^#]+(?:# (?P<note>.+))?$")
_UNITS = (("GiB", limits.GIB), ("MiB", limits.MIB), ("KiB", limits.KIB))
_HIDDEN_LIMITS = {"KIB", "MIB", "GIB"}


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def apis_table() -> str:
    return apis.markdown_table()


def settings_table() -> str:
    rows = [
        [f"`{s.variable}`", f"`{s.flag}`", _default(s.kind, s.default), s.help] for s in SETTINGS
    ]
    return table(["variable", "flag", "default", "meaning"], rows)


def topic_configs_table() -> str:
    rows = [
        [
            f"`{config.name}`",
            f"`{config.default}`",
            config.expects,
            "yes" if config.effective else "no",
            config.doc,
        ]
        for config in TOPIC_CONFIGS.values()
    ]
    return table(["config", "default", "accepted", "has an effect", "meaning"], rows)


def broker_configs_table() -> str:
    rows = [
        [f"`{c.name}`", f"`{c.default}`", c.expects, "yes" if c.effective else "no", c.doc]
        for c in sorted(DYNAMIC_CONFIGS.values(), key=lambda config: config.name)
    ]
    return table(["config", "default", "accepted", "has an effect", "meaning"], rows)


def quotas_table() -> str:
    rows = [
        [
            f"`{name}`",
            "an address" if key.for_ip else "user, client id or both",
            "yes" if key.effective else "no",
            key.doc,
        ]
        for name, key in QUOTA_KEYS.items()
    ]
    return table(["quota", "of", "has an effect", "meaning"], rows)


def limits_table() -> str:
    """The constants of model/limits.py with the comments that stand beside them."""
    rows = []
    title = ""
    source = (ROOT / "streamhouse" / "model" / "limits.py").read_text(encoding="utf-8")
    for line in source.splitlines():
        if section := _SECTION.match(line):
            title = section["title"]
        elif (limit := _LIMIT.match(line)) and limit["name"] not in _HIDDEN_LIMITS:
            name = limit["name"]
            rows.append([title, f"`{name}`", _amount(name), limit["note"] or ""])
    return table(["part", "limit", "value", "note"], rows)


def metrics_table() -> str:
    rows = []
    for metric in _metrics():
        kind = "counter" if metric.kind is Kind.COUNTER else "gauge"
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append([f"`{metric.name}`", kind, labels, metric.help])
    return table(["metric", "kind", "labels", "meaning"], rows)


def _metrics() -> list[Metric]:
    """All metrics by name; their numbers are never read here, so nothing has to stand behind."""
    nothing: Any = SimpleNamespace(
        appender=None, catalog=None, reader=SimpleNamespace(runs=None, bytes_read=0)
    )
    return [*agent_metrics(nothing, nothing), *kafka_metrics(nothing), *http_metrics(nothing)]


def _default(kind: type, value: object) -> str:
    if value == "":
        return ""
    return f"`{int(bool(value))}`" if kind is bool else f"`{value}`"


def _amount(name: str) -> str:
    value: int = getattr(limits, name)
    if "BYTES" in name:
        for unit, size in _UNITS:
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value:,} bytes"
    return f"{value:,} ms" if "_MS" in name else f"{value:,}"


Block = tuple[str, str, Callable[[], str]]
BLOCKS: tuple[Block, ...] = (
    ("README.md", "apis", apis_table),
    ("docs/configuration.md", "settings", settings_table),
    ("docs/configuration.md", "topic-configs", topic_configs_table),
    ("docs/configuration.md", "broker-configs", broker_configs_table),
    ("docs/configuration.md", "quotas", quotas_table),
    ("docs/configuration.md", "limits", limits_table),
    ("docs/operations.md", "metrics", metrics_table),
)


def with_block(text: str, name: str, body: str) -> str:
    """`text` with what stands between the markers of `name` replaced by `body`."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the markers of {name} are missing")
    return before + begin + body + end + after


def stale_blocks() -> list[str]:
    """'file: block' of every table that is not what the code says."""
    stale = []
    for path, name, render in BLOCKS:
        text = (ROOT / path).read_text(encoding="utf-8")
        if with_block(text, name, render()) != text:
            stale.append(f"{path}: {name}")
    return stale


def write_blocks() -> None:
    for path, name, render in BLOCKS:
        file = ROOT / path
        text = file.read_text(encoding="utf-8")
        file.write_text(with_block(text, name, render()), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite the tables")
    stale = stale_blocks()
    for block in stale:
        print(block)
    if parser.parse_args().write:
        write_blocks()
        return 0
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
