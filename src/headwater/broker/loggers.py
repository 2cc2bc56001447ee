"""Levels of this process's loggers, under Kafka's names. They last as long as the process."""

from __future__ import annotations

import logging

from headwater.errors import ConfigError

ROOT = "root"
OURS = "headwater"
LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def names() -> list[str]:
    """The root logger, and the existing loggers of Headwater."""
    known = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if name.split(".")[0] == OURS and isinstance(logger, logging.Logger)
    ]
    return [ROOT, *sorted(known)]


def level(name: str) -> str:
    """The effective level of a logger."""
    effective = _logger(name).getEffectiveLevel()
    return next((word for word, number in LEVELS.items() if number <= effective), "TRACE")


def check(name: str, word: str | None) -> None:
    """Raise if there is no such logger or no such level."""
    if name not in names():
        raise ConfigError(f"Logger {name} does not exist!")
    if word is not None and word not in LEVELS:
        raise ConfigError(f"Cannot set the log level of {name} to {word} as it is not a supported log level.")


def set_level(name: str, word: str | None) -> None:
    """Set the level of a logger. None restores the root logger's level."""
    if word is not None:
        _logger(name).setLevel(LEVELS[word])
    elif name != ROOT:
        _logger(name).setLevel(logging.NOTSET)
