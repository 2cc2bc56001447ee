"""Puts a JSON Schema and the schemas that it refers to into one, in which every `$ref` is a pointer into itself.

Nothing is fetched. A reference is found by the name under which it was registered, by its `$id`, or by an anchor.
"""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import quote, unquote, urljoin

from headwater.schemas.jsonschema.keywords import CONTAINERS, children
from headwater.schemas.texts import refuse, step

MAX_NAMES = 10_000
"""The most `$id`s and anchors in a schema with its references."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that refer to another schema. The last two are followed as the first one is."""

_ANCHORS = ("$anchor", "$dynamicAnchor")
_NAMES = ("$id", "id", "$recursiveAnchor", *_ANCHORS)
_BASE = "http://schema.invalid/"


class Bundler:
    """One schema and its references. `old` is for drafts up to 7, whose `$id` may be an anchor."""

    def __init__(self, schema: Any, references: list[tuple[str, Any]], old: bool) -> None:
        self._old = old
        self._definitions = "definitions" if old else "$defs"
        self._places: dict[str, tuple[int, str]] = {}
        """By URI: the number of the document, and the place in it."""
        self._bases: dict[int, str] = {}
        """By the identity of a schema: the URI against which its references are resolved."""
        self._done: set[int] = set()
        """The identities of schemas in the documents that have been rewritten."""
        self._kept: list[Any] = []
        """What is no longer in a document. While it is here, its identity is not used again."""
        self._documents = [schema]
        self._names = ["The JSON Schema"]
        self._prefixes = [""]
        taken = schema.get(self._definitions, {}) if isinstance(schema, dict) else {}
        for at, (name, one) in enumerate(references):
            self._documents.append(one)
            self._names.append(f"Reference {name!r}")
            key = f"reference-{at + 1}"
            while key in taken:
                key = f"_{key}"
            self._prefixes.append(step(step("", self._definitions), key))
            self._places.setdefault(_absolute(name), (at + 1, ""))
        for number, document in enumerate(self._documents):
            name = _absolute(references[number - 1][0]) if number else _BASE
            self._collect(number, document, "", name)

    def bundled(self) -> Any:
        """The one schema."""
        whole = self._rewritten(0, self._documents[0], "")
        if len(self._documents) > 1 and isinstance(whole, dict):
            inside = dict(whole.get(self._definitions, {}))
            for number in range(1, len(self._documents)):
                inside[self._prefixes[number].rpartition("/")[2]] = self._rewritten(number, self._documents[number], "")
            whole[self._definitions] = inside
        _refuse_circles(whole)
        return whole

    def _collect(self, number: int, schema: Any, place: str, base: str) -> None:
        """Remember the names of a schema and of all schemas in it."""
        if not isinstance(schema, dict):
            return
        plain = schema.get("$ref") is None or not self._old  # beside a `$ref`, old drafts ignore all else
        name = schema.get("$id", schema.get("id") if self._old else None)
        if isinstance(name, str) and plain:
            if name.startswith("#"):
                self._places.setdefault(base + name, (number, place))
            else:
                base = _defragmented(_joined(base, name))[0]
                self._places.setdefault(base, (number, place))
        if place == "":
            self._places.setdefault(base, (number, place))
        if len(self._places) > MAX_NAMES:
            refuse(self._names[number], place, f"the schema and its references have more than {MAX_NAMES} names")
        for keyword in _ANCHORS:
            if isinstance(schema.get(keyword), str):
                self._places.setdefault(f"{base}#{schema[keyword]}", (number, place))
        self._bases[id(schema)] = base
        for child, inner in children(schema, place):
            self._collect(number, child, inner, base)

    def _rewritten(self, number: int, schema: Any, place: str) -> Any:
        """The schema with its references as pointers into the bundle, and without names of its own."""
        if not isinstance(schema, dict) or id(schema) in self._done:
            return schema
        whole = {name: value for name, value in schema.items() if name not in _NAMES or _is_property(name, value)}
        for keyword in REFERENCES:
            if keyword in whole:
                target = whole.pop(keyword)
                whole["$ref"] = self._pointer(number, place, keyword, target, self._bases.get(id(schema), _BASE))
        for name in CONTAINERS:
            if isinstance(whole.get(name), (dict, list)):
                whole[name] = whole[name].copy()
        for child, inner in children(schema, place):
            _put(whole, inner[len(place) :], self._rewritten(number, child, inner))
        return whole

    def _pointer(self, number: int, place: str, keyword: str, target: Any, base: str) -> str:
        here = step(place, keyword)
        if not isinstance(target, str):
            refuse(self._names[number], here, "a reference is a string")
        address, fragment = _defragmented(_joined(base, target))
        anchor = f"{address}#{fragment}"
        if anchor in self._places:
            found, start = self._places[anchor]
        elif address in self._places and (not fragment or fragment.startswith("/")):
            found, start = self._places[address]
            start += unquote(fragment)
        elif target.partition("#")[0] == "" and (not fragment or fragment.startswith("/")):
            found, start = number, unquote(fragment)
        else:
            self._refuse(number, here, target)
        node = _at(self._documents[found], start)
        if not isinstance(node, (dict, bool)):
            self._refuse(number, here, target)
        if isinstance(node, dict) and id(node) not in self._bases:
            # It is outside of the keywords for schemas. The walk does not come by, so it is rewritten in place.
            self._collect(found, node, start, address)
            whole = self._rewritten(found, node, start)
            self._kept.append(node.copy())
            node.clear()
            node.update(whole)
            self._mark(node)
        return "#" + quote(self._prefixes[found] + start, safe="/~!$&'()*+,;=:@")

    def _mark(self, schema: Any) -> None:
        """Remember that a schema and all schemas in it have been rewritten."""
        if isinstance(schema, dict):
            self._bases[id(schema)] = _BASE
            self._done.add(id(schema))
            for child, _ in children(schema, ""):
                self._mark(child)

    def _refuse(self, number: int, place: str, target: str) -> NoReturn:
        refuse(self._names[number], place, f"{target!r} refers to nothing in the schema and its references")


def follow(schema: Any, pointer: str) -> Any:
    """The schema that a `$ref` of a bundle means."""
    return _at(schema, unquote(pointer.removeprefix("#")))


def _joined(base: str, name: str) -> str:
    """A name inside of a schema as a URI. `urljoin` does not know the schemes without a hierarchy, such as `urn`."""
    if name.startswith("#") or not name:
        return base + name
    try:
        return urljoin(base, name)
    except ValueError:  # such as half of an IPv6 address
        return name


def _absolute(name: str) -> str:
    return _defragmented(_joined(_BASE, name))[0]


def _defragmented(uri: str) -> tuple[str, str]:
    address, _, fragment = uri.partition("#")
    return address, fragment


def _is_property(name: str, value: Any) -> bool:
    """Whether `id` is no name of a schema: old drafts took it for one only if it is a string."""
    return name == "id" and not isinstance(value, str)


def _at(schema: Any, place: str) -> Any:
    """What is at a place of a schema; None if there is nothing."""
    for part in place.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and part in schema:
            schema = schema[part]
        elif isinstance(schema, list) and part.isascii() and part.isdigit() and int(part) < len(schema):
            schema = schema[int(part)]
        else:
            return None
    return schema


def _put(schema: dict[str, Any], place: str, value: Any) -> None:
    """Put a value at a place one or two steps below."""
    first, *rest = (part.replace("~1", "/").replace("~0", "~") for part in place.split("/")[1:])
    if not rest:
        schema[first] = value
    elif isinstance(schema[first], list):
        schema[first][int(rest[0])] = value
    else:
        schema[first][rest[0]] = value


def _refuse_circles(whole: Any) -> None:
    """Refuse a `$ref` that leads to itself by way of others without a schema in between."""
    todo, seen, fine = [whole], set(), set()
    while todo:
        node = todo.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        todo.extend(child for child, _ in children(node, ""))
        passed: set[int] = set()
        while isinstance(node, dict) and "$ref" in node and id(node) not in fine:
            if id(node) in passed:
                refuse("The JSON Schema", node["$ref"], "the references lead in a circle")
            passed.add(id(node))
            node = follow(whole, node["$ref"])
        fine |= passed
