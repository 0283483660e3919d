"""What an alteration of settings asks for, in Kafka's four operations. Pure."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from streamhouse.model.topic import TOPIC_CONFIGS, ConfigDef, ConfigType, InvalidConfig


class ConfigOp(IntEnum):
    """Kafka's numbers (AlterConfigOp)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEdit(NamedTuple):
    name: str
    op: ConfigOp
    value: str | None  # None only for DELETE


def changes_of(
    config: Mapping[str, str],
    edits: Sequence[ConfigEdit],
    known_configs: Mapping[str, ConfigDef] = TOPIC_CONFIGS,
) -> dict[str, str | None]:
    """What becomes of each named setting; None gives it back to its default.

    Values are not judged here, except that only lists can be appended to. Raises InvalidConfig.
    """
    changes: dict[str, str | None] = {}
    for name, op, value in edits:
        known = known_configs.get(name)
        if known is None:
            raise InvalidConfig(f"unknown config {name!r}")
        if op is ConfigOp.DELETE:
            changes[name] = None
            continue
        assert value is not None, "only a deletion has no value"
        if op is ConfigOp.SET:
            changes[name] = value.strip()
            continue
        if known.type is not ConfigType.LIST:
            raise InvalidConfig(f"cannot {op.name} to {name}: it is not a list")
        changes[name] = _edited_list(config.get(name, known.default), op, value)
    return changes


def merged(config: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The settings with the changes made."""
    after = {**config, **{name: value for name, value in changes.items() if value is not None}}
    return {name: value for name, value in after.items() if changes.get(name, value) is not None}


def _edited_list(current: str, op: ConfigOp, value: str) -> str:
    items = _items(current)
    for item in _items(value):
        if op is ConfigOp.APPEND and item not in items:
            items.append(item)
        elif op is ConfigOp.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
