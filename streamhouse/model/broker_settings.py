"""Settings of the broker that can be changed while it runs, under Kafka's names. Pure.

What topics fall back to takes effect at once for every topic that has no setting of its own. The
others are kept and shown because tools set them; they have no counterpart here.
"""

from collections.abc import Mapping
from dataclasses import replace

from streamhouse.model.topic import TOPIC_CONFIGS, ConfigDef, ConfigType, InvalidConfig

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1


def _of_topics() -> dict[str, ConfigDef]:
    return {
        known.broker_name: replace(
            known,
            name=known.broker_name,
            doc=f"Default of the topic setting {known.name}. {known.doc}",
        )
        for known in TOPIC_CONFIGS.values()
        if known.broker_name
    }


def _without_effect(name: str, kind: ConfigType, default: str) -> ConfigDef:
    high = _INT_MAX if kind is ConfigType.INT else _LONG_MAX

    def check(value: str) -> bool:
        return value.isascii() and value.isdigit() and len(value) < 20 and 1 <= int(value) <= high

    return ConfigDef(name, kind, default, check, "1 or more", "Has no counterpart here.", False)


DYNAMIC_CONFIGS: Mapping[str, ConfigDef] = {
    **_of_topics(),
    **{
        known.name: known
        for known in (
            _without_effect("background.threads", ConfigType.INT, "10"),
            _without_effect("follower.replication.throttled.rate", ConfigType.LONG, str(_LONG_MAX)),
            _without_effect("leader.replication.throttled.rate", ConfigType.LONG, str(_LONG_MAX)),
            _without_effect("log.cleaner.threads", ConfigType.INT, "1"),
            _without_effect("num.io.threads", ConfigType.INT, "8"),
            _without_effect("num.network.threads", ConfigType.INT, "3"),
            _without_effect("num.replica.fetchers", ConfigType.INT, "1"),
            _without_effect("sasl.kerberos.min.time.before.relogin", ConfigType.LONG, "60000"),
        )
    },
}


def check_broker_config(config: Mapping[str, str]) -> None:
    """Raises InvalidConfig for the first entry that cannot be."""
    for name, value in config.items():
        known = DYNAMIC_CONFIGS.get(name)
        if known is None:
            raise InvalidConfig(f"{name!r} cannot be changed while the broker runs")
        if not known.check(value):
            raise InvalidConfig(f"{name}={value!r} is not valid: expected {known.expects}")


def topic_defaults_of(config: Mapping[str, str]) -> dict[str, str]:
    """What a broker's settings mean for topics."""
    return {
        known.name: config[known.broker_name]
        for known in TOPIC_CONFIGS.values()
        if known.broker_name in config
    }
