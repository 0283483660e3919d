"""The process's loggers under Kafka's BROKER_LOGGER resource, with Kafka's names of levels."""

import logging

ROOT = "root"
OURS = "streamhouse"

_TO_PYTHON = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_TO_KAFKA = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
LEVELS = tuple(_TO_PYTHON)


def logger_levels() -> dict[str, str]:
    """Kafka's level of the root logger and of each of ours."""
    known = logging.Logger.manager.loggerDict
    names = [ROOT, *sorted(name for name in known if name.split(".")[0] == OURS)]
    return {name: _level_of(_logger(name)) for name in names}


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level; None lets it follow the root logger again."""
    if level is None:
        assert name != ROOT, "the root logger follows nobody"
        _logger(name).setLevel(logging.NOTSET)
    else:
        _logger(name).setLevel(_TO_PYTHON[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_of(logger: logging.Logger) -> str:
    return _TO_KAFKA.get(logger.getEffectiveLevel(), "INFO")
