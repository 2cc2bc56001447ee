"""Messages of any version from plain values.

A handler gives all values as keyword arguments and nested mappings; `build` takes those that the version has a field
for. Integers become error codes and time spans where the schema has them. A name that no version of a message has is a
mistake; `tests/unit/wire` looks for those.
"""

from __future__ import annotations

import datetime
import functools
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from kio.schema.errors import ErrorCode

_ERRORS: dict[int, ErrorCode] = {code.value: code for code in ErrorCode}
_ZERO = datetime.timedelta(0)
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def _timedelta(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds) if milliseconds else _ZERO


def _datetime(milliseconds: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=milliseconds)


def _optional_datetime(milliseconds: int | None) -> datetime.datetime | None:
    return None if milliseconds is None or milliseconds < 0 else _datetime(milliseconds)


def _error(code: int | ErrorCode) -> ErrorCode:
    return code if isinstance(code, ErrorCode) else _ERRORS[code]


def _builder_of(kind: Any) -> tuple[Callable[[Any], Any] | None, Any]:
    """How to convert a value for a field of this type (`None`: unchanged), and the default."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [argument for argument in typing.get_args(kind) if argument is not types.NoneType]
        if len(inner) == 1 and inner[0] is not uuid.UUID:
            convert, _ = _builder_of(inner[0])
            if convert is _datetime:
                return _optional_datetime, None
            if convert is not None:
                return (lambda value: None if value is None else convert(value)), None
        return None, None
    if origin is tuple:
        convert, _ = _builder_of(typing.get_args(kind)[0])
        if convert is None:
            return tuple, ()
        return (lambda values: tuple([convert(value) for value in values])), ()
    if is_dataclass(kind):
        nested = builder(typing.cast(type, kind))
        return nested, nested({})
    if kind is ErrorCode:
        return _error, ErrorCode.none
    if isinstance(kind, type):
        if issubclass(kind, datetime.timedelta):
            return _timedelta, _ZERO
        if issubclass(kind, datetime.datetime):
            return _datetime, _EPOCH
        for base, default in ((bool, False), (int, 0), (str, ""), (bytes, b""), (float, 0.0)):
            if issubclass(kind, base):
                return None, default
    return None, None


@functools.cache
def builder(entity: type) -> Callable[[Mapping[str, Any]], Any]:
    """A function that makes an entity from a mapping of field names."""
    hints = typing.get_type_hints(entity)
    plan = []
    for field in fields(entity):
        convert, implicit = _builder_of(hints[field.name])
        default = implicit if field.default is MISSING else field.default
        plan.append((field.name, convert, default))

    def make(values: Mapping[str, Any]) -> Any:
        arguments = {}
        for name, convert, default in plan:
            if name in values:
                value = values[name]
                arguments[name] = value if convert is None else convert(value)
            else:
                arguments[name] = default
        return entity(**arguments)

    return make


def build(entity: type, /, **values: Any) -> Any:
    """An entity from keyword arguments. Arguments without a field are left out."""
    return builder(entity)(values)
