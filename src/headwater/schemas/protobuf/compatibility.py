"""Whether one Protobuf schema reads what was written with another one, by the rules of Confluent's registry.

Fields match by their numbers. Fields may come and go, unless they are required or members of a oneof that stays.
Numbers of one kind of encoding may become others of it. The path of a difference is names of messages, then the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.schemas.differences import Difference
from headwater.schemas.protobuf.model import ProtobufModel, files_of

_TEXTS = {
    "PACKAGE_CHANGED": "the package in the {reader} schema does not match the {writer} schema",
    "MESSAGE_REMOVED": "the {reader} schema is missing a message of the {writer} schema",
    "FIELD_KIND_CHANGED": "the type of a field in the {reader} schema does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "the kind of a scalar field in the {reader} schema does not match the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "the type of a message field in the {reader} schema does not match the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "the label of a number in the {reader} schema does not match the {writer} schema",
    "REQUIRED_FIELD_ADDED": "a required field of the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "the {reader} schema is missing a required field of the {writer} schema",
    "ONEOF_FIELD_REMOVED": "the {reader} schema is missing a field of a oneof of the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "fields of a oneof of the {reader} schema are outside of it in the {writer} one",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field of a oneof of the {reader} schema is outside of it in the {writer} one",
}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_REQUIRED, _REPEATED = 2, 3
_SCALARS = {
    **dict.fromkeys((3, 4, 5, 8, 13, _ENUM), "number"),
    **dict.fromkeys((17, 18), "signed number"),
    **dict.fromkeys((9, 12), "string or bytes"),
    **dict.fromkeys((7, 15), "fixed32"),
    **dict.fromkeys((6, 16), "fixed64"),
    1: "double",
    2: "float",
}
"""By the type of a field, how its values are encoded."""


def differences(reader: ProtobufModel, writer: ProtobufModel) -> list[Difference]:
    """What keeps the reader's schema from reading what was written with the writer's. Nothing: it reads all of it."""
    return _Comparison(_Schema(reader), _Schema(writer)).compare()


@dataclass(frozen=True, slots=True)
class _Message:
    descriptor: Any
    package: str
    local: bool
    """Whether the schema's own file defines it."""
    proto3: bool


class _Schema:
    """The messages of a schema and of what it imports, by their full names."""

    def __init__(self, model: ProtobufModel) -> None:
        files = files_of(model.descriptors)
        self.file = files[-1]
        self.messages: dict[str, _Message] = {}
        for file in files:
            prefix = f".{file.package}" if file.package else ""
            todo = [(prefix, message) for message in file.message_type]
            while todo:
                above, message = todo.pop()
                name = f"{above}.{message.name}"
                self.messages[name] = _Message(message, file.package, file is self.file, file.syntax == "proto3")
                todo.extend((name, inner) for inner in message.nested_type)


class _Comparison:
    def __init__(self, reader: _Schema, writer: _Schema) -> None:
        self._reader = reader
        self._writer = writer
        self._found: list[Difference] = []
        self._compared: dict[tuple[str, str], bool] = {}

    def compare(self) -> list[Difference]:
        if self._reader.file.package != self._writer.file.package:
            self._add("PACKAGE_CHANGED", "")
        self._all(self._reader.file.message_type, self._writer.file.message_type, ("", ""), "")
        return list(dict.fromkeys(self._found))

    def _add(self, kind: str, place: str) -> None:
        self._found.append(Difference(kind, f"#/{place}", _TEXTS[kind]))

    def _all(self, reader: Any, writer: Any, above: tuple[str, str], place: str) -> None:
        """Compare messages of one level by their names."""
        packages = [file.package for file in (self._reader.file, self._writer.file)]
        prefixes = [one or (f".{package}" if package else "") for one, package in zip(above, packages, strict=True)]
        present = {message.name: message for message in reader}
        for old in writer:
            here = f"{place}/{old.name}" if place else old.name
            if old.name in present:
                self._messages(f"{prefixes[0]}.{old.name}", f"{prefixes[1]}.{old.name}", here)
            elif not old.options.map_entry:
                self._add("MESSAGE_REMOVED", here)

    def _messages(self, reader: str, writer: str, place: str) -> bool:
        """Compare two messages, once. The answer is whether they fit; while they are compared, they do."""
        if (reader, writer) in self._compared:
            return self._compared[reader, writer]
        self._compared[reader, writer] = True
        before = len(self._found)
        new, old = self._reader.messages[reader], self._writer.messages[writer]
        if not new.descriptor.options.map_entry:
            self._fields(new, old, place)
        self._all(new.descriptor.nested_type, old.descriptor.nested_type, (reader, writer), place)
        self._compared[reader, writer] = len(self._found) == before
        return self._compared[reader, writer]

    def _fields(self, reader: _Message, writer: _Message, place: str) -> None:
        new = {field.number: field for field in reader.descriptor.field}
        old = {field.number: field for field in writer.descriptor.field}
        new_oneofs, old_oneofs = _oneofs(reader.descriptor), _oneofs(writer.descriptor)
        self._moves(reader.descriptor, new_oneofs, old, old_oneofs, place)
        gone = {
            name
            for name in set(old_oneofs.values()) - set(new_oneofs.values())
            if not any(number in new for number, oneof in old_oneofs.items() if oneof == name)
        }
        for number in sorted({*new, *old}):
            if number not in new:
                oneof = old_oneofs.get(number)
                if oneof is not None and oneof not in gone:
                    self._add("ONEOF_FIELD_REMOVED", f"{place}/{oneof}/{number}")
                elif oneof is None and old[number].label == _REQUIRED:
                    self._add("REQUIRED_FIELD_REMOVED", f"{place}/{number}")
            elif number not in old:
                if new[number].label == _REQUIRED:
                    self._add("REQUIRED_FIELD_ADDED", f"{place}/{number}")
            else:
                oneof = new_oneofs.get(number)
                here = f"{place}/{oneof}/{number}" if oneof is not None else f"{place}/{number}"
                labels = (_label(new[number], reader.proto3), _label(old[number], writer.proto3))
                self._types(new[number], old[number], labels, here)

    def _moves(
        self, reader: Any, new_oneofs: dict[int, str], old: dict[int, Any], old_oneofs: dict[int, str], place: str
    ) -> None:
        """Fields that could be set together, and in the reader's schema exclude each other."""
        for oneof in (one.name for one in reader.oneof_decl):
            members = [number for number, name in new_oneofs.items() if name == oneof and number in old]
            alone = sum(number not in old_oneofs for number in members)
            groups = alone + len({old_oneofs[number] for number in members if number in old_oneofs})
            if groups > 1:
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self._add(kind, f"{place}/{oneof}")

    def _types(self, reader: Any, writer: Any, labels: tuple[int | None, int | None], place: str) -> None:
        new, old = self._kind(reader, self._reader), self._kind(writer, self._writer)
        if new != old:
            self._add("FIELD_KIND_CHANGED", place)
        elif new == "scalar":
            if _SCALARS[reader.type] != _SCALARS[writer.type]:
                self._add("FIELD_SCALAR_KIND_CHANGED", place)
            elif None not in labels and labels[0] != labels[1] and _SCALARS[reader.type] != "string or bytes":
                self._add("FIELD_NUMERIC_LABEL_CHANGED", place)
        elif new == "map":
            entries = (self._reader.messages[reader.type_name], self._writer.messages[writer.type_name])
            pairs = zip(*(sorted(one.descriptor.field, key=lambda part: part.number) for one in entries), strict=True)
            for one, other in pairs:
                self._types(one, other, (None, None), place)
        else:
            self._named(reader.type_name, writer.type_name, place)

    def _kind(self, field: Any, schema: _Schema) -> str:
        if field.type not in (_MESSAGE, _GROUP):
            return "scalar"
        is_map = field.label == _REPEATED and schema.messages[field.type_name].descriptor.options.map_entry
        return "map" if is_map else "message"

    def _named(self, reader: str, writer: str, place: str) -> None:
        new, old = self._reader.messages[reader], self._writer.messages[writer]
        name = reader.removeprefix(f".{new.package}" if new.package else "")
        fits = name == writer.removeprefix(f".{old.package}" if old.package else "")
        if fits and not (new.local and old.local):  # the walk over the schema's own file does not come by
            fits = self._messages(reader, writer, name[1:].replace(".", "/"))
        if not fits:
            self._add("FIELD_NAMED_TYPE_CHANGED", place)


def _oneofs(message: Any) -> dict[int, str]:
    """By the number of a field, the oneof that it is a member of. Optional fields of proto3 have none."""
    return {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }


def _label(field: Any, proto3: bool) -> int | None:
    """The label of a field, if its text has one."""
    if field.label in (_REQUIRED, _REPEATED):
        return int(field.label)
    explicit = field.proto3_optional if proto3 else not field.HasField("oneof_index")
    return int(field.label) if explicit else None
