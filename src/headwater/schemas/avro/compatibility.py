"""Whether one Avro schema reads what was written with another one: the resolution rules of the specification.

Records, enums and fixed types match by their names without the namespace, or by an alias, as in Avro's Java library.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import BadSchema
from headwater.schemas.avro.model import AvroModel, definitions_of
from headwater.schemas.avro.names import NAMED
from headwater.schemas.differences import Difference
from headwater.schemas.texts import step

MAX_STEPS = 100_000
"""The most pairs of types that are compared."""

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""By the reader's type, the other types of the writer that it takes."""


def differences(reader: AvroModel, writer: AvroModel) -> list[Difference]:
    """What keeps the reader's schema from reading what was written with the writer's. Nothing: it reads all of it."""
    return _Comparison(definitions_of(reader.tree), definitions_of(writer.tree)).compare(reader.tree, writer.tree, "")


class _Comparison:
    def __init__(self, reader: dict[str, Any], writer: dict[str, Any]) -> None:
        self._reader = reader
        self._writer = writer
        self._found: dict[tuple[int, int], list[Difference]] = {}

    def compare(self, reader: Any, writer: Any, place: str) -> list[Difference]:
        reader = self._reader.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._writer.get(writer, writer) if isinstance(writer, str) else writer
        if not isinstance(reader, (dict, list)) or not isinstance(writer, (dict, list)):
            return self._compare(reader, writer, place)
        pair = (id(reader), id(writer))
        if pair in self._found:
            return self._found[pair][:1]  # all of them have been reported, and the lists must not double
        if len(self._found) >= MAX_STEPS:
            raise BadSchema(f"The schemas are too large to be compared: it takes more than {MAX_STEPS} steps")
        self._found[pair] = []  # while it is compared, a type that contains itself is taken to fit
        self._found[pair] = self._compare(reader, writer, place)
        return self._found[pair]

    def _compare(self, reader: Any, writer: Any, place: str) -> list[Difference]:
        if isinstance(writer, list):
            return self._written_union(reader, writer, place)
        if isinstance(reader, list):
            if any(not self.compare(branch, writer, place) for branch in reader):
                return []
            return [_missing_branch(place, writer)]
        kind, other = _kind(reader), _kind(writer)
        if kind != other:
            if other in _PROMOTIONS.get(kind, ()):
                return []
            info = f"the reader has {kind}, the writer {other}"
            text = "the type in the {reader} schema does not match the {writer} schema"
            return [Difference("TYPE_MISMATCH", place or "/", text, info)]
        if kind == "array":
            return self.compare(reader["items"], writer["items"], step(place, "items"))
        if kind == "map":
            return self.compare(reader["values"], writer["values"], step(place, "values"))
        if kind not in NAMED:
            return []
        found = _names(reader, writer, place)
        if kind == "fixed":
            return found + _sizes(reader, writer, place)
        return found + (_symbols(reader, writer, place) if kind == "enum" else self._fields(reader, writer, place))

    def _written_union(self, reader: Any, branches: list[Any], place: str) -> list[Difference]:
        """Whatever branch was written, the reader takes it."""
        found: list[Difference] = []
        for at, branch in enumerate(branches):
            here = step(place, at)
            if not isinstance(reader, list):
                found.extend(self.compare(reader, branch, here))
            elif self.compare(reader, branch, here):
                found.append(
                    _missing_branch(here, self._writer.get(branch, branch) if isinstance(branch, str) else branch)
                )
        return found

    def _fields(self, reader: dict[str, Any], writer: dict[str, Any], place: str) -> list[Difference]:
        found: list[Difference] = []
        written = {field["name"]: field for field in writer["fields"]}
        for at, field in enumerate(reader["fields"]):
            here = step(step(place, "fields"), at)
            sources = [
                written[name] for name in dict.fromkeys((field["name"], *field.get("aliases", ()))) if name in written
            ]
            if len(sources) > 1:
                text = f"the field {field['name']} of the {{reader}} schema is, by its aliases, several fields "
                found.append(Difference("READER_FIELD_AMBIGUOUS", here, text + "of the {writer} schema", field["name"]))
            elif sources:
                found.extend(self.compare(field["type"], sources[0]["type"], step(here, "type")))
            elif "default" not in field:
                text = f"the field {field['name']} in the {{reader}} schema has no default value and is missing in the "
                text += "{writer} schema"
                found.append(Difference("READER_FIELD_MISSING_DEFAULT_VALUE", here, text, field["name"]))
        return found


def _kind(tree: Any) -> str:
    kind: str = tree if isinstance(tree, str) else tree["type"]
    return "record" if kind == "error" else kind


def _missing_branch(place: str, writer: Any) -> Difference:
    text = "the {reader} schema is missing a type of a union of the {writer} schema"
    name = writer.get("name", writer["type"]) if isinstance(writer, dict) else str(writer)
    return Difference("MISSING_UNION_BRANCH", place or "/", text, f"the reader's union lacks {name}")


def _names(reader: dict[str, Any], writer: dict[str, Any], place: str) -> list[Difference]:
    same = reader["name"].rpartition(".")[2] == writer["name"].rpartition(".")[2]
    if same or writer["name"] in reader.get("aliases", ()):
        return []
    text = "the name of a type in the {reader} schema does not match the {writer} schema"
    return [Difference("NAME_MISMATCH", step(place, "name"), text, f"expected {writer['name']}")]


def _sizes(reader: dict[str, Any], writer: dict[str, Any], place: str) -> list[Difference]:
    if reader["size"] == writer["size"]:
        return []
    text = "the size of a fixed type in the {reader} schema does not match the {writer} schema"
    info = f"expected {writer['size']}, found {reader['size']}"
    return [Difference("FIXED_SIZE_MISMATCH", step(place, "size"), text, info)]


def _symbols(reader: dict[str, Any], writer: dict[str, Any], place: str) -> list[Difference]:
    missing = sorted(set(writer["symbols"]) - set(reader["symbols"]))
    if not missing or "default" in reader:
        return []
    text = "the {reader} schema is missing symbols of an enum of the {writer} schema"
    return [Difference("MISSING_ENUM_SYMBOLS", step(place, "symbols"), text, f"[{', '.join(missing)}]")]
