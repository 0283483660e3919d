"""Who may import whom: the rooms of docs/architecture.md as a test (standard library only)."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "streamhouse"

# A room may import what is listed, itself, and nothing else of ours.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "ports": {"model"},
    "kafka_proto": {"model"},
    "segment": {"model"},
    "objects": {"ports", "model"},
    "metadata": {"ports", "model"},
    "wal": {"ports", "model"},
    "metrics": {"ports", "model"},
    "agent": {"ports", "model", "segment", "kafka_proto.record_batch", "kafka_proto.errors"},
    "groups": {"ports", "model"},
    "server.kafka": {
        "kafka_proto",
        "model",
        "ports",
        "agent.service",
        "groups.service",
        "server",
    },
    "server.http": {"model", "ports", "agent.service", "groups.service", "server"},
    "server.grpc": {"model", "ports", "agent.service", "server"},
    "server": {"model"},
    # `segments` reads a store without a server, as Spark does, so it needs stores and segments.
    "cli": {"model", "ports", "segment", "objects", "kafka_proto.record_batch", "app", "__init__"},
    "data_dir": {"model", "ports"},
    "system": {"ports"},
    "__init__": set(),
    "__main__": {"cli"},
}

# Pure files decide and perform nothing: no event loop, clock, chance, files, sockets or logs.
PURE = [
    "agent/machine.py",
    "agent/producers.py",
    "agent/retention.py",
    "agent/tail.py",
    "agent/batch_run.py",
    "groups/machine.py",
    "groups/subscription.py",
    "server/kafka/fetch_sessions.py",
    "server/kafka/frames.py",
    "wal/format.py",
    *(f"model/{path.name}" for path in sorted((ROOT / "model").glob("*.py"))),
    *(f"segment/{path.name}" for path in sorted((ROOT / "segment").glob("*.py"))),
    *(f"kafka_proto/{path.name}" for path in sorted((ROOT / "kafka_proto").glob("*.py"))),
]
IMPURE_MODULES = {"asyncio", "time", "random", "socket", "logging", "os", "threading", "subprocess"}

# Time, chance and ids come in through ports everywhere but in system.py and at the edges.
EDGES = {"system.py", "app.py", "data_dir.py", "__main__.py"}
EDGE_ROOMS = {"cli", "objects", "wal", "metadata"}  # adapters of disks and files
BANNED_CALLS = {
    ("time", "time"): "use the Clock port",
    ("time", "time_ns"): "use the Clock port",
    ("time", "monotonic"): "use the Clock port",
    ("time", "sleep"): "use asyncio.sleep",
    ("uuid", "uuid4"): "use the Ids port",
    ("random", "random"): "take a seeded random.Random by argument",
    ("datetime", "now"): "use the Clock port",
    ("os", "urandom"): "use the Ids port",
}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "server" and len(parts) > 2:
        return f"server.{parts[1]}"
    return parts[0]


def ours_imported(path: Path) -> set[str]:
    """Dotted names below `streamhouse` that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("streamhouse.") for name in names if name.startswith("streamhouse.")}


def is_allowed(room: str, name: str) -> bool:
    allowed = ALLOWED[room] | {room}
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


def test_rooms_import_only_what_the_table_allows() -> None:
    faults = []
    for path in modules():
        room = room_of(path)
        if room == "app":  # the composition root may use everything
            continue
        assert room in ALLOWED, f"{path}: room {room} is not in the table"
        for name in sorted(ours_imported(path)):
            if name == "__version__":
                continue
            if not is_allowed(room, name):
                faults.append(f"{path.relative_to(ROOT)}: {room} may not import {name}")
    assert not faults, "\n".join(faults)


def test_pure_files_import_nothing_that_acts() -> None:
    faults = []
    for name in PURE:
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = [node.module.split(".")[0]]
            faults += [f"{name} imports {m}" for m in found if m in IMPURE_MODULES]
    assert not faults, "\n".join(faults)


def test_time_and_chance_come_in_by_argument() -> None:
    faults = []
    for path in modules():
        if path.name in EDGES or room_of(path) in EDGE_ROOMS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            value = node.func.value
            owner = value.id if isinstance(value, ast.Name) else ""
            advice = BANNED_CALLS.get((owner, node.func.attr))
            if advice:
                faults.append(
                    f"{path.relative_to(ROOT)}:{node.lineno} {owner}.{node.func.attr}: {advice}"
                )
    assert not faults, "\n".join(faults)


def test_every_file_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, f"no module docstring: {silent}"


def test_no_dead_modules() -> None:
    """Every module is imported by another one or by the tests, or is an entry point."""
    entry = {"__main__", "cli.main"}
    imported: set[str] = set()
    for path in [*modules(), *sorted((ROOT.parent / "tests").rglob("*.py"))]:
        for name in ours_imported(path):
            parts = name.split(".")
            imported |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    dead = []
    for path in modules():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.name != "__init__.py" and name not in imported and name not in entry:
            dead.append(name)
    assert not dead, f"nothing imports {dead}"
