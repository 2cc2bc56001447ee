"""Checks of a request's bytes before kio decodes them.

kio's native reader allocates as many elements as an array claims to have, before it reads any: a frame of twenty bytes
could end the process. It returns `None` also where the schema has no null. It refuses unknown tagged fields, which the
protocol says to ignore. So this module refuses an array that claims more elements than there are bytes, and a null
where the schema has none; and it removes unknown tagged fields. It also counts the elements of all arrays, and refuses
a request with too many.
"""

from __future__ import annotations

import functools
import struct
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeAlias

from headwater.errors import CorruptFrame, TooManyItems
from headwater.types import Buffer
from headwater.wire.encode import FIXED

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_FIXED_HEADER_BYTES = 8
_MAX_VARINT_BYTES = 5
NO_LIMIT = 1 << 31


class _Skim:
    """One frame under inspection."""

    __slots__ = ("data", "items", "limit", "unknown")

    def __init__(self, data: memoryview, limit: int) -> None:
        self.data = data
        self.items = 0
        self.limit = limit
        self.unknown: list[tuple[int, list[tuple[int, int]]]] = []
        """Positions of the counts of tagged fields, and the ranges of fields to remove."""


Step: TypeAlias = Callable[[_Skim, int], int]
"""Returns the end of a field that begins at a position."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for i in range(1, _MAX_VARINT_BYTES):
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise CorruptFrame("a varint has more than five bytes")


class _Fixed(int):
    """A field of a fixed number of bytes."""


def _length(flexible: bool, short: bool, optional: bool) -> Callable[[memoryview, int], tuple[int, int]]:
    """Returns the length of a field, -1 for a null that is allowed, and the position behind the length."""
    unpack, size = (_SHORT.unpack_from, _SHORT.size) if short else (_INT.unpack_from, _INT.size)
    least = -1 if optional else 0

    def read(data: memoryview, at: int) -> tuple[int, int]:
        if flexible:
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = _varint(data, at)
            length -= 1
        else:
            (length,) = unpack(data, at)
            at += size
        if length < least:
            raise CorruptFrame("a field that cannot be null has a negative length")
        return length, at

    return read


def _sized(flexible: bool, short: bool, optional: bool) -> Step:
    read = _length(flexible, short, optional)

    def step(skim: _Skim, at: int) -> int:
        length, at = read(skim.data, at)
        return at + length if length > 0 else at

    return step


def _array(flexible: bool, item: Step, optional: bool) -> Step:
    read = _length(flexible, False, optional)

    def step(skim: _Skim, at: int) -> int:
        count, at = read(skim.data, at)
        end = len(skim.data)
        if count > end - at:
            raise CorruptFrame(f"an array claims {count} elements in {end - at} bytes")
        if count > 0:
            skim.items += count
            if skim.items > skim.limit:
                raise TooManyItems(f"the lists of a request have at most {skim.limit} elements here")
        for _ in range(count):
            at = item(skim, at)
            if at > end:
                raise CorruptFrame(f"an array of {count} elements is cut short")
        return at

    return step


def _nullable(entity: Step) -> Step:
    return lambda skim, at: entity(skim, at + 1) if skim.data[at] < 0x80 else at + 1


def _tags(known: dict[int, Step]) -> Step:
    def step(skim: _Skim, at: int) -> int:
        if not skim.data[at]:
            return at + 1
        counted_at = at
        count, at = _varint(skim.data, at)
        unknown: list[tuple[int, int]] = []
        for _ in range(count):
            began = at
            tag, at = _varint(skim.data, at)
            size, at = _varint(skim.data, at)
            if tag not in known:
                unknown.append((began, at + size))
            else:
                before = len(skim.unknown)
                if known[tag](skim, at) != at + size:
                    raise CorruptFrame(f"the tagged field {tag} has a wrong length")
                if len(skim.unknown) > before:
                    raise CorruptFrame(f"the tagged field {tag} contains an unknown tagged field")
            at += size
        if unknown:
            if count >= 0x80:
                raise CorruptFrame(f"{count} tagged fields are too many")
            skim.unknown.append((counted_at, unknown))
        return at

    return step


def _scalar(kind: str, flexible: bool, optional: bool) -> Step | _Fixed:
    if kind in FIXED:
        return _Fixed(struct.calcsize(f">{FIXED[kind][0]}"))
    return _sized(flexible, short=kind == "string", optional=optional)


def _field(kind: Any, kafka_type: str, flexible: bool) -> Step | _Fixed:
    optional = typing.get_origin(kind) in (UnionType, typing.Union)
    if optional:
        kind = next(argument for argument in typing.get_args(kind) if argument is not NoneType)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        step = _entity(typing.cast(type, item)) if is_dataclass(item) else _scalar(kafka_type, flexible, False)
        return _array(flexible, _walk([step]) if isinstance(step, _Fixed) else step, optional)
    if is_dataclass(kind):
        return _nullable(_entity(typing.cast(type, kind))) if optional else _entity(typing.cast(type, kind))
    return _scalar(kafka_type, flexible, optional)


@functools.cache
def _entity(entity: type) -> Step:
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    hints = typing.get_type_hints(entity)
    steps: list[Step | _Fixed] = []
    tagged: dict[int, Step] = {}
    for field in fields(entity):
        step = _field(hints[field.name], field.metadata.get("kafka_type", ""), flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _walk([step])
        else:
            steps.append(step)
    if flexible:
        steps.append(_tags(tagged))
    return _walk(steps)


def _walk(fields: list[Step | _Fixed]) -> Step:
    """These fields one after the other. Fields of fixed size cost nothing."""
    steps: list[tuple[int, Step]] = []
    rest = 0
    for field in fields:
        if isinstance(field, _Fixed):
            rest += field
        else:
            steps.append((rest, field))
            rest = 0

    def walk(skim: _Skim, at: int) -> int:
        for before, step in steps:
            at = step(skim, at + before)
        return at + rest

    return walk


@functools.cache
def _request(schema: type) -> Step:
    """The header, whose client id has the old encoding in every version, and the body."""
    header: Any = schema.__header_schema__  # type: ignore[attr-defined]
    steps: list[Step | _Fixed] = [_Fixed(_FIXED_HEADER_BYTES)]
    if len(fields(header)) > 3:
        steps.append(_sized(flexible=False, short=True, optional=True))
    if header.__flexible__:
        steps.append(_tags({}))
    return _walk([*steps, _entity(schema)])


def skim(schema: type, frame: memoryview, limit: int = NO_LIMIT) -> memoryview:
    """The frame in a form that kio can read; raises `CorruptFrame` if it is malformed.

    Raises `TooManyItems` if its lists have more elements in all than the limit.
    """
    found = _Skim(frame, limit)
    try:
        _request(schema)(found, 0)
    except (IndexError, struct.error) as error:
        raise CorruptFrame(f"the request is cut short: {error}") from error
    return _without_unknown(frame, found) if found.unknown else frame


def _without_unknown(frame: memoryview, found: _Skim) -> memoryview:
    """The frame without these ranges, copied once however many there are."""
    edits: list[tuple[int, int, bytes]] = []
    for counted_at, ranges in found.unknown:
        edits.append((counted_at, counted_at + 1, bytes([frame[counted_at] - len(ranges)])))
        edits += ((start, end, b"") for start, end in ranges)
    pieces: list[Buffer] = []
    kept = 0
    for start, end, instead in sorted(edits):
        pieces += (frame[kept:start], instead)
        kept = end
    pieces.append(frame[kept:])
    return memoryview(b"".join(pieces))
