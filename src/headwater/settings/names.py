"""The names of settings. One that is unknown is refused, with the known name that is nearest to it."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import msgspec

from headwater.errors import ConfigError

ENV_PREFIX = "HEADWATER_"
GATEWAY_VARIABLE = "HEADWATER_GATEWAY_URL"
"""The gateway that commands ask. It is not a setting of a process."""
_TESTS = "HEADWATER_TEST_"
LIKENESS = 0.6
"""How much a known name must have in common with an unknown one to be named."""


@cache
def names_of(section: type[msgspec.Struct]) -> tuple[tuple[str, ...], ...]:
    """All settings of a section, each with the sections that it is in. Types do not change, so it looks once."""
    return tuple(_names_of(section))


def _names_of(section: type[msgspec.Struct]) -> Iterator[tuple[str, ...]]:
    types = typing.get_type_hints(section)
    for name in section.__struct_fields__:
        inner = types[name]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from ((name, *rest) for rest in names_of(inner))
        else:
            yield (name,)


def check_names(section: type[msgspec.Struct], tree: Mapping[str, object]) -> None:
    """Raise if a tree of settings has a name that does not exist."""
    for keys in _leaves(tree):
        _check(section, keys, ".".join)


def variables(section: type[msgspec.Struct], environment: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    """The settings in an environment. Raises if a variable names none."""
    for name, value in sorted(environment.items()):
        if name.startswith(ENV_PREFIX) and not name.startswith(_TESTS) and name != GATEWAY_VARIABLE:
            keys = name.removeprefix(ENV_PREFIX).lower().split("__")
            _check(section, keys, _as_variable)
            yield keys, value


def _as_variable(keys: Sequence[str]) -> str:
    return ENV_PREFIX + "__".join(keys).upper()


def _leaves(tree: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from ((name, *rest) for rest in _leaves(value))
        else:
            yield (name,)


def _check(section: type[msgspec.Struct], keys: Sequence[str], write: Callable[[Sequence[str]], str]) -> None:
    """Raise if a setting does not exist. `write` makes the text of a name."""
    known, own = names_of(section), tuple(keys)
    if any(own[: len(one)] == one or one[: len(own)] == own for one in known):
        return  # with more keys it is a place in a table of the user's, with fewer a section
    texts = {"_".join(one): write(one) for one in known}
    close = difflib.get_close_matches("_".join(own), texts, n=1, cutoff=LIKENESS)
    nearest = f"; the nearest one is {texts[close[0]]}" if close else ""
    given = write(own)
    raise ConfigError(f"settings: there is no setting {given}{nearest}; docs/reference/configuration.md lists them")
