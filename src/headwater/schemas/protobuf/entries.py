"""Entries of maps, as far as they count when a record names its message by indexes.

A map in a .proto file is a repeated field of a nested message, its entry, which only descriptors show. Serializers that
work with descriptors count it among the nested messages. Those that work with texts do not know it, unless the text
shows it: Java's serializer writes `option map_entry = true` in such messages, which protoc refuses. So the option is
hidden from protoc behind a reserved name, which stays in the descriptor and tells that the entry counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headwater.errors import BadSchema

_MARK = "headwater_map_entry_counts"
_OPTION = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_REPEATED = 3
_KEYS = frozenset({3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18})
"""Types that the key of a map may have, by the numbers that descriptors have for types."""


def hidden(text: str) -> str:
    """A text that protoc takes: entries of maps that it shows have a reserved name instead of the option."""
    return _OPTION.sub(f'reserved "{_MARK}";', text)


def restored(descriptors: bytes) -> bytes:
    """The descriptors of hidden texts, with entries of maps that have the option again. Raises `BadSchema`."""
    from google.protobuf import descriptor_pb2

    if _MARK.encode() not in descriptors:
        return descriptors
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    for file in files.file:
        for name, message in _messages(file.message_type, f".{file.package}" if file.package else ""):
            for entry in message.nested_type:
                if _MARK in entry.reserved_name:
                    _check(message, entry, f"{name}.{entry.name}")
                    entry.options.map_entry = True
        if any(_MARK in message.reserved_name for message in file.message_type):
            raise BadSchema("option map_entry is for a message inside of the one that has the map")
    return bytes(files.SerializeToString())


def marked(file: Any) -> None:
    """Let all entries of a descriptor count, which a serializer that works with descriptors has sent."""
    for _, message in _messages(file.message_type, ""):
        for entry in message.nested_type:
            if entry.options.map_entry and _MARK not in entry.reserved_name:
                entry.reserved_name.append(_MARK)


def unmarked(file: Any) -> None:
    """Take the marks out of a descriptor."""
    for _, message in _messages(file.message_type, ""):
        for entry in message.nested_type:
            if _MARK in entry.reserved_name:
                del entry.reserved_name[:]


def counted(messages: Sequence[Any]) -> list[Any]:
    """The messages that indexes count."""
    return [message for message in messages if not message.options.map_entry or _MARK in message.reserved_name]


def are_shown(message: Any) -> bool:
    """Whether a text must show the entries of a message's maps: they count, and others come behind them."""
    entries = [at for at, one in enumerate(message.nested_type) if one.options.map_entry and _MARK in one.reserved_name]
    others = [at for at, one in enumerate(message.nested_type) if not one.options.map_entry]
    return bool(entries and others and entries[0] < others[-1])


def _messages(messages: Iterable[Any], within: str) -> Iterator[tuple[str, Any]]:
    for message in messages:
        name = f"{within}.{message.name}"
        yield name, message
        yield from _messages(message.nested_type, name)


def _check(message: Any, entry: Any, name: str) -> None:
    """Raise `BadSchema` if a message cannot be the entry of a map."""
    parts = [(field.name, field.number, field.label) for field in entry.field]
    uses = [field for field in message.field if field.type_name == name and field.label == _REPEATED]
    if parts != [("key", 1, 1), ("value", 2, 1)] or entry.field[0].type not in _KEYS or len(uses) != 1:
        raise BadSchema(f"{name[1:]}: option map_entry is for messages with a key and a value, the type of one map")
