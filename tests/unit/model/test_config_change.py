"""Kafka's four operations on settings, and what becomes of the others."""

import pytest

from streamhouse.model.config_change import ConfigEdit, ConfigOp, changes_of, merged
from streamhouse.model.topic import InvalidConfig, parse_settings


@pytest.mark.parametrize(
    ("before", "op", "value", "after"),
    [
        ({}, ConfigOp.SET, " compact ", "compact"),
        ({"cleanup.policy": "compact"}, ConfigOp.DELETE, None, None),
        ({}, ConfigOp.APPEND, "compact", "delete,compact"),  # to the default
        ({"cleanup.policy": "compact"}, ConfigOp.APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, ConfigOp.APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, ConfigOp.SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, ConfigOp.SUBTRACT, "delete", "compact"),
    ],
)
def test_each_operation_says_what_the_setting_becomes(
    before: dict[str, str], op: ConfigOp, value: str | None, after: str | None
) -> None:
    changes = changes_of(before, [ConfigEdit("cleanup.policy", op, value)])
    assert changes == {"cleanup.policy": after}


def test_only_lists_can_be_appended_to() -> None:
    with pytest.raises(InvalidConfig, match="not a list"):
        changes_of({}, [ConfigEdit("retention.ms", ConfigOp.APPEND, "5")])
    with pytest.raises(InvalidConfig, match="unknown"):
        changes_of({}, [ConfigEdit("retention.hours", ConfigOp.SET, "5")])


def test_merging_leaves_the_others_alone() -> None:
    before = {"retention.ms": "5", "segment.ms": "6"}
    assert merged(before, {"retention.ms": None, "flush.ms": "7"}) == {
        "segment.ms": "6",
        "flush.ms": "7",
    }


@pytest.mark.parametrize("value", ["1_000", "٣", "1e3", "0x10", "", "9" * 30])
def test_numbers_are_what_java_takes_for_numbers(value: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_settings({"retention.ms": value})
