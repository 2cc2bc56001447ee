"""A descriptor as a .proto text. Names of types are full names; spacing and the order of options do not matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headwater.schemas.protobuf.entries import are_shown
from headwater.schemas.protobuf.options import Options, quoted

_SCALARS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_GROUP, _STRING, _BYTES = 10, 9, 12
_LABELS = {2: "required ", 3: "repeated "}
_MAX_FIELD = 1 << 29
_MAX_ENUM = (1 << 31) - 1


class Printer:
    """Prints one file. `normal` leaves comments out, and puts imports and fields in order."""

    def __init__(self, file: Any, options: Options, normal: bool) -> None:
        self._file = file
        self._options = options
        self._normal = normal
        self._proto3 = file.syntax == "proto3"
        self._editions = file.syntax == "editions"
        self._comments = {} if normal else _comments(file)

    def text(self) -> str:
        """The whole text."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        file = self._file
        if self._editions:
            yield f'edition = "{self._options.edition(file)}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = self._imports()
        if imports:
            yield ""
            yield from imports
        options = self._options.of("FileOptions", file.options)
        if options:
            yield ""
            yield from (f"option {option};" for option in options)
        for at, message in enumerate(file.message_type):
            yield ""
            yield from self._message(message, (4, at))
        for at, enum in enumerate(file.enum_type):
            yield ""
            yield from self._enum(enum, (5, at))
        yield from self._extensions(file.extension, (7,), ())
        for at, service in enumerate(file.service):
            yield ""
            yield from self._service(service, (6, at))

    def _imports(self) -> list[str]:
        kinds = {at: "public " for at in self._file.public_dependency}
        kinds |= {at: "weak " for at in self._file.weak_dependency}
        imports = [(name, kinds.get(at, "")) for at, name in enumerate(self._file.dependency)]
        return [f"import {kind}{quoted(name)};" for name, kind in (sorted(imports) if self._normal else imports)]

    def _comment(self, path: tuple[int, ...]) -> Iterator[str]:
        for line in self._comments.get(path, "").splitlines():
            yield f"// {line}".rstrip()

    def _message(self, message: Any, path: tuple[int, ...], head: str = "") -> Iterator[str]:
        if not head:
            yield from self._comment(path)
            head = f"message {message.name}"
        yield head + " {"
        yield from _indented(self._body(message, path))
        yield "}"

    def _entry(self, entry: Any) -> Iterator[str]:
        """The entry of a map as a message of its own."""
        yield f"message {entry.name} {{"
        yield "  option map_entry = true;"
        yield from (f"  {self._label(one)}{_type(one)} {one.name} = {one.number};" for one in entry.field)
        yield "}"

    def _body(self, message: Any, path: tuple[int, ...]) -> Iterator[str]:
        for option in self._options.of("MessageOptions", message.options, without=("map_entry",)):
            yield f"option {option};"
        yield from _reserved(message, _MAX_FIELD, exclusive=True, normal=self._normal)
        for span in message.extension_range:
            options = self._options.of("ExtensionRangeOptions", span.options)
            yield f"extensions {_span(span.start, span.end - 1, _MAX_FIELD - 1)}{_bracketed(options)};"
        nested = {f".{name.name}": (at, name) for at, name in enumerate(message.nested_type)}
        shown = not self._normal and are_shown(message)
        maps = {name: kind for name, (_, kind) in nested.items() if kind.options.map_entry and not shown}
        groups = {_last(field.type_name) for field in (*message.field, *message.extension) if field.type == _GROUP}
        done: set[int] = set()
        for at, field in self._ordered(message.field):
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in done:
                    done.add(field.oneof_index)
                    yield from self._oneof(message, field.oneof_index, path, maps, nested)
                continue
            yield from self._field(field, (*path, 2, at), maps, nested, path)
        yield from self._extensions(message.extension, (*path, 6), path, nested)
        for at, inner in enumerate(message.nested_type):
            if inner.options.map_entry:
                yield from self._entry(inner) if shown else ()
            elif f".{inner.name}" not in groups:
                yield from self._message(inner, (*path, 3, at))
        for at, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, 4, at))

    def _oneof(
        self, message: Any, index: int, path: tuple[int, ...], maps: dict[str, Any], nested: dict[str, Any]
    ) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield from self._comment((*path, 8, index))
        yield f"oneof {oneof.name} {{"
        for option in self._options.of("OneofOptions", oneof.options):
            yield f"  option {option};"
        for at, field in self._ordered(message.field):
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from _indented(self._field(field, (*path, 2, at), maps, nested, path, label=""))
        yield "}"

    def _field(
        self,
        field: Any,
        path: tuple[int, ...],
        maps: dict[str, Any],
        nested: dict[str, Any],
        parent: tuple[int, ...],
        label: str | None = None,
    ) -> Iterator[str]:
        yield from self._comment(path)
        options = _bracketed(self._field_options(field))
        label = self._label(field) if label is None else label
        entry = maps.get(_last(field.type_name))
        if field.type == _GROUP:
            at, group = nested[_last(field.type_name)]
            head = f"{label}group {group.name} = {field.number}{options}"
            yield from self._message(group, (*parent, 3, at), head)
        elif entry is not None and field.label == 3:
            key, value = (_type(one) for one in entry.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{options};"
        else:
            yield f"{label}{_type(field)} {field.name} = {field.number}{options};"

    def _label(self, field: Any) -> str:
        if field.label in _LABELS:
            return _LABELS[field.label]
        if self._editions or (self._proto3 and not field.proto3_optional):
            return ""
        return "optional "

    def _field_options(self, field: Any) -> list[str]:
        options = self._options.of("FieldOptions", field.options)
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options.insert(0, f"json_name = {quoted(field.json_name)}")
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == _STRING:
                value = quoted(value)
            elif field.type == _BYTES:
                value = f'"{value}"'
            options.insert(0, f"default = {value}")
        return options

    def _enum(self, enum: Any, path: tuple[int, ...]) -> Iterator[str]:
        yield from self._comment(path)
        yield f"enum {enum.name} {{"
        for option in self._options.of("EnumOptions", enum.options):
            yield f"  option {option};"
        yield from _indented(_reserved(enum, _MAX_ENUM, exclusive=False, normal=self._normal))
        for at, value in enumerate(enum.value):
            yield from _indented(self._comment((*path, 2, at)))
            options = _bracketed(self._options.of("EnumValueOptions", value.options))
            yield f"  {value.name} = {value.number}{options};"
        yield "}"

    def _extensions(
        self, fields: Any, path: tuple[int, ...], parent: tuple[int, ...], nested: dict[str, Any] | None = None
    ) -> Iterator[str]:
        for at, field in enumerate(fields):
            if not parent:
                yield ""
            yield f"extend {field.extendee} {{"
            inside = nested or {f".{one.name}": (at, one) for at, one in enumerate(self._file.message_type)}
            yield from _indented(self._field(field, (*path, at), {}, inside, parent))
            yield "}"

    def _service(self, service: Any, path: tuple[int, ...]) -> Iterator[str]:
        yield from self._comment(path)
        yield f"service {service.name} {{"
        for option in self._options.of("ServiceOptions", service.options):
            yield f"  option {option};"
        for at, method in enumerate(service.method):
            yield from _indented(self._comment((*path, 2, at)))
            takes = ("stream " if method.client_streaming else "") + method.input_type
            gives = ("stream " if method.server_streaming else "") + method.output_type
            options = " ".join(f"option {one};" for one in self._options.of("MethodOptions", method.options))
            yield f"  rpc {method.name} ({takes}) returns ({gives}){f' {{ {options} }}' if options else ';'}"
        yield "}"

    def _ordered(self, fields: Any) -> Iterable[tuple[int, Any]]:
        numbered = list(enumerate(fields))
        return sorted(numbered, key=lambda one: one[1].number) if self._normal else numbered


def _comments(file: Any) -> dict[tuple[int, ...], str]:
    """The comments of a file by the paths of what they belong to."""
    found: dict[tuple[int, ...], str] = {}
    for location in file.source_code_info.location:
        parts = (location.leading_comments, location.trailing_comments)
        text = "\n".join(line.strip() for part in parts for line in part.strip().splitlines())
        if text:
            found[tuple(location.path)] = text
    return found


def _type(field: Any) -> str:
    return _SCALARS.get(field.type) or str(field.type_name)


def _last(name: str) -> str:
    return "." + name.rpartition(".")[2]


def _json_name(name: str) -> str:
    """The name that protoc gives a field in JSON: letters after `_` are capitals."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _bracketed(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _reserved(element: Any, greatest: int, exclusive: bool, normal: bool) -> Iterator[str]:
    last = greatest - 1 if exclusive else greatest
    spans = [(span.start, span.end - 1 if exclusive else span.end) for span in element.reserved_range]
    names = list(element.reserved_name)
    if normal:
        spans, names = sorted(spans), sorted(names)
    if spans:
        yield f"reserved {', '.join(_span(start, end, last) for start, end in spans)};"
    if names:
        yield f"reserved {', '.join(quoted(name) for name in names)};"


def _span(start: int, end: int, greatest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == greatest else end}"
