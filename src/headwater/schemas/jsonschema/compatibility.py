"""Whether one JSON Schema takes what another one takes, by the (strict) rules of Confluent's registry.

An object or array is open if it takes members that it does not name, closed if it takes none, and partially open if it
has a schema for them. The reader's schema may name more members than the writer's only where the writer's is not open.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headwater.errors import BadSchema
from headwater.schemas.differences import Difference
from headwater.schemas.jsonschema import judging
from headwater.schemas.jsonschema.matching import matched
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.jsonschema.texts import TEXTS
from headwater.schemas.jsonschema.views import View, Views
from headwater.schemas.steps import Steps
from headwater.schemas.texts import sorted_json, write_json

MAX_STEPS = 100_000
"""The most comparisons of two parts, or of a name and a pattern."""

CHARACTERS = 200
"""So many characters of a text take one step."""

MAX_DIFFERENCES = 100
"""The most differences of one pair that are kept."""

Found = list[tuple[str, tuple[str, ...]]]
"""Differences: their names, and their places below the pair."""


def differences(reader: JsonModel, writer: JsonModel) -> list[Difference]:
    """What keeps the reader's schema from taking what the writer's takes. Nothing: it takes all of it."""
    known: dict[tuple[int, int], Found] = {}
    views = (Views(reader), Views(writer))
    steps = Steps(
        MAX_STEPS, BadSchema(f"The schemas are too large to be compared: it takes more than {MAX_STEPS} steps")
    )
    while True:
        comparison = _Comparison(*views, known, steps)
        found = comparison.compare(views[0].root(), views[1].root())
        # A schema that contains itself was taken to fit while it was compared. If it does not, what was
        # concluded from that may be wrong, so all is compared again with this knowledge.
        unfit = comparison.unfit()
        if not comparison.assumed or unfit.keys() == known.keys():
            return [Difference(kind, "#/" + "/".join(place), TEXTS[kind]) for kind, place in found]
        known = unfit


def _below(found: Found, *steps: str) -> Found:
    return [(kind, (*steps, *place)) for kind, place in found]


class _Comparison:
    def __init__(self, reader: Views, writer: Views, known: dict[tuple[int, int], Found], steps: Steps) -> None:
        self._reader = reader
        self._writer = writer
        self._known = known
        self._steps = steps
        self._done: dict[tuple[int, int], Found] = {}
        self._open: set[tuple[int, int]] = set()
        self._reversed: _Comparison | None = None
        self.assumed = False

    def unfit(self) -> dict[tuple[int, int], Found]:
        """The pairs that do not fit."""
        return {pair: found for pair, found in self._done.items() if found}

    def compare(self, reader: Any, writer: Any) -> Found:
        """Compare two schemas, each pair once."""
        new, old = self._reader.of(reader), self._writer.of(writer)
        pair = (id(new), id(old))
        if pair in self._done:
            return self._done[pair]
        if pair in self._open:
            self.assumed = self.assumed or pair not in self._known
            return self._known.get(pair, [])
        self._steps.take()
        self._open.add(pair)
        found = list(dict.fromkeys(self._compare(new, old)))[:MAX_DIFFERENCES]
        self._open.remove(pair)
        self._done[pair] = found
        return found

    def _compare(self, new: View, old: View) -> Found:
        if new.kind == "combined" and old.kind != "combined":
            if (len(new.parts) == 1 or new.criterion != "allOf") and any(not self.compare(p, old) for p in new.parts):
                return []
        elif (
            old.kind == "combined"
            and new.kind != "combined"
            and (len(old.parts) == 1 or old.criterion == "allOf")
            and any(not self.compare(new, part) for part in old.parts)
        ):
            return []
        if new.kind != old.kind:
            bytes_both = all(view.node.get("connect.type") == "bytes" for view in (new, old))
            return [] if old.kind == "nothing" or new.kind == "anything" or bytes_both else [("TYPE_CHANGED", ())]
        compare: Callable[[View, View], Found] | None = {
            "string": _strings,
            "number": _numbers,
            "enum": _enums,
            "const": _constants,
            "not": self._nots,
            "combined": self._combinations,
            "object": self._objects,
            "array": self._arrays,
        }.get(new.kind)
        return compare(new, old) if compare is not None else []

    def _nots(self, new: View, old: View) -> Found:
        """What the reader excludes must be excluded by the writer too: the pair is compared the other way round."""
        if self._reversed is None:
            self._reversed = _Comparison(self._writer, self._reader, {}, self._steps)
        found = self._reversed.compare(old.node["not"], new.node["not"])
        return [("NOT_TYPE_EXTENDED", ("not",))] if found else []

    def _combinations(self, new: View, old: View) -> Found:
        single_new, single_old = len(new.parts) == 1, len(old.parts) == 1
        if new.criterion != old.criterion and not (
            new.criterion == "anyOf"
            or (single_old and single_new)
            or (single_old and new.criterion == "oneOf")
            or (single_new and old.criterion == "allOf")
        ):
            return [("COMBINED_TYPE_CHANGED", ())]
        found: Found = []
        ours = list({self._text(view): view for view in map(self._reader.of, new.parts)}.values())
        theirs = list({self._text(view): view for view in map(self._writer.of, old.parts)}.values())
        if len(theirs) < len(ours) and new.criterion == "allOf":
            found.append(("PRODUCT_TYPE_EXTENDED", ()))
        elif len(theirs) > len(ours) and old.criterion != "allOf":
            found.append(("SUM_TYPE_NARROWED", ()))
        fits = [[at for at, one in enumerate(ours) if not self.compare(one, other)] for other in theirs]
        if matched(fits, len(ours)) < min(len(ours), len(theirs)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return found

    def _text(self, view: View) -> str:
        """The text of a view. What is combined in each other is written once for each level, so it takes steps."""
        text = view.text
        self._steps.take(len(text) // CHARACTERS)
        return text

    def _objects(self, new: View, old: View) -> Found:
        found = _required(new.node, old.node) + self._properties(new.node, old.node)
        found += self._dependencies(new.node, old.node)
        found += self._others(new.node.get("additionalProperties"), old.node.get("additionalProperties"), "Properties")
        found += self._unevaluated(new.node, old.node, "Properties")
        found += _bound(new.node, old.node, "maxProperties", upper=True)
        return found + _bound(new.node, old.node, "minProperties", upper=False)

    def _properties(self, new: dict[str, Any], old: dict[str, Any]) -> Found:
        found: Found = []
        ours, theirs = new.get("properties", {}), old.get("properties", {})
        required = new.get("required") or ()
        for name in {**theirs, **ours}:
            here = ("properties", name)
            if name not in ours:
                found += _below(self._gone(theirs[name], new, name, "PROPERTY"), *here)
            elif name in theirs:
                found += _below(self.compare(ours[name], theirs[name]), *here)
            else:
                needed = name in required and not (isinstance(ours[name], dict) and "default" in ours[name])
                is_open, others = self._content(self._writer, old, "Properties", name)
                if is_open:
                    if self._reader.of(ours[name]).kind != "anything":
                        kind = "REQUIRED_PROPERTY_ADDED" if needed else "OPTIONAL_PROPERTY_ADDED"
                        kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED" if name in required and not needed else kind
                        found.append((f"{kind}_TO_OPEN_CONTENT_MODEL", here))
                    continue
                if others is not None:
                    found += _below(self._covered(ours[name], others, "PROPERTY_ADDED"), *here)
                if needed:
                    found.append(("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", here))
        return found

    def _gone(self, theirs: Any, new: dict[str, Any], name: str, what: str) -> Found:
        """What follows if the writer names a member that the reader does not name."""
        is_open, others = self._content(self._reader, new, "Properties" if what == "PROPERTY" else "Items", name)
        if is_open:
            return []
        if others is not None:
            return self._covered(others, theirs, f"{what}_REMOVED")
        if self._writer.of(theirs).kind == "nothing":
            return []
        return [(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", ())]

    def _covered(self, reader: Any, writer: Any, what: str) -> Found:
        found = self.compare(reader, writer)
        return [*found, (f"{what}_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())] if found else []

    def _content(self, views: Views, node: dict[str, Any], what: str, name: str) -> tuple[bool, Any]:
        """Whether an object or array is open; else the schema for a member that it does not name, or None."""
        additional = node.get("additionalProperties") if what == "Properties" else views.items(node)[2]
        if what == "Properties":
            for pattern, schema in node.get("patternProperties", {}).items():
                self._steps.take(10)
                if judging.matches(pattern, name):
                    return False, schema
        if additional is False:
            return False, None
        if isinstance(additional, dict):
            return False, additional
        rest = node.get(f"unevaluated{what}")
        kind = "anything" if rest is None else views.of(rest).kind
        if kind == "anything":
            return not (what == "Properties" and node.get("patternProperties")), None
        return False, None if kind == "nothing" else rest

    def _dependencies(self, new: dict[str, Any], old: dict[str, Any]) -> Found:
        found: Found = []
        ours, theirs = ({**one.get("dependencies", {}), **one.get("dependentRequired", {})} for one in (new, old))
        for name, needs in ours.items():
            if isinstance(needs, list):
                before = theirs.get(name)
                here = ("dependencies", name)
                if not isinstance(before, list):
                    found.append(("DEPENDENCY_ARRAY_ADDED", here))
                elif not set(needs) <= set(before):
                    extended = set(needs) > set(before)
                    found.append(("DEPENDENCY_ARRAY_EXTENDED" if extended else "DEPENDENCY_ARRAY_CHANGED", here))
        ours, theirs = ({**one.get("dependencies", {}), **one.get("dependentSchemas", {})} for one in (new, old))
        for name, schema in ours.items():
            if not isinstance(schema, list):
                before = theirs.get(name)
                if before is None or isinstance(before, list):
                    found.append(("DEPENDENCY_SCHEMA_ADDED", ("dependencies", name)))
                else:
                    found += _below(self.compare(schema, before), "dependencies", name)
        return found

    def _others(self, new: Any, old: Any, what: str) -> Found:
        """Compare `additionalProperties` or `additionalItems`."""
        here = f"additional{what}"
        kind = f"ADDITIONAL_{what.upper()}"
        if (new is False) != (old is False):
            return [(f"{kind}_REMOVED", (here,))] if new is False else []
        if isinstance(new, dict) and isinstance(old, dict):
            return _below(self.compare(new, old), here)
        return [(f"{kind}_NARROWED", (here,))] if isinstance(new, dict) and not isinstance(old, dict) else []

    def _unevaluated(self, new: dict[str, Any], old: dict[str, Any], what: str) -> Found:
        here = f"unevaluated{what}"
        ours = self._reader.of(new.get(here, True))
        theirs = self._writer.of(old.get(here, True))
        if ours.kind == "nothing" or theirs.kind == "nothing":
            taken = ours.kind == "nothing" and theirs.kind != "nothing"
            return [(f"UNEVALUATED_{what.upper()}_REMOVED", (here,))] if taken else []
        if ours.kind == "anything" or theirs.kind == "anything":
            return [(f"UNEVALUATED_{what.upper()}_NARROWED", (here,))] if ours.kind != "anything" else []
        return _below(self.compare(ours, theirs), here)

    def _arrays(self, new: View, old: View) -> Found:
        all_new, first_new, rest_new = self._reader.items(new.node)
        all_old, first_old, rest_old = self._writer.items(old.node)
        found: Found = []
        if all_new is not None:
            added: Found = [("SCHEMA_ADDED", ())]
            found += _below(added if all_old is None else self.compare(all_new, all_old), "items")
        for at in range(max(len(first_new), len(first_old))):
            if at >= len(first_new):
                said = self._gone(first_old[at], new.node, "", "ITEM")
            elif at < len(first_old):
                said = self.compare(first_new[at], first_old[at])
            else:
                is_open, others = self._content(self._writer, old.node, "Items", "")
                said = []
                if is_open and self._reader.of(first_new[at]).kind != "anything":
                    said = [("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", ())]
                elif others is not None:
                    said = self._covered(first_new[at], others, "ITEM_ADDED")
            found += _below(said, "items", str(at))
        found += self._others(rest_new, rest_old, "Items") + self._unevaluated(new.node, old.node, "Items")
        for name in ("Items", "Contains"):
            found += _bound(new.node, old.node, f"max{name}", upper=True)
            found += _bound(new.node, old.node, f"min{name}", upper=False)
        if new.node.get("uniqueItems") is True and old.node.get("uniqueItems") is not True:
            found.append(("UNIQUE_ITEMS_ADDED", ("uniqueItems",)))
        return found


def _strings(new: View, old: View) -> Found:
    found = _bound(new.node, old.node, "maxLength", upper=True) + _bound(new.node, old.node, "minLength", upper=False)
    ours, theirs = new.node.get("pattern"), old.node.get("pattern")
    if ours is not None and ours != theirs:
        found.append(("PATTERN_ADDED" if theirs is None else "PATTERN_CHANGED", ("pattern",)))
    return found


def _numbers(new: View, old: View) -> Found:
    found: Found = []
    for name in ("maximum", "exclusiveMaximum"):
        found += _bound(new.node, old.node, name, upper=True)
    for name in ("minimum", "exclusiveMinimum"):
        found += _bound(new.node, old.node, name, upper=False)
    ours, theirs = _number(new.node.get("multipleOf")), _number(old.node.get("multipleOf"))
    if ours is not None and ours != theirs:
        if theirs is None:
            found.append(("MULTIPLE_OF_ADDED", ("multipleOf",)))
        elif theirs and not _remainder(ours, theirs):
            found.append(("MULTIPLE_OF_EXPANDED", ("multipleOf",)))
        elif not ours or _remainder(theirs, ours):
            found.append(("MULTIPLE_OF_CHANGED", ("multipleOf",)))
    if new.node.get("type") == "integer" and old.node.get("type") != "integer":
        found.append(("TYPE_NARROWED", ()))
    return found


def _enums(new: View, old: View) -> Found:
    ours, theirs = ({_value(one) for one in view.node["enum"]} for view in (new, old))
    if theirs <= ours:
        return []
    return [("ENUM_ARRAY_NARROWED" if ours < theirs else "ENUM_ARRAY_CHANGED", ("enum",))]


def _constants(new: View, old: View) -> Found:
    same = _value(new.node["const"]) == _value(old.node["const"])
    return [] if same else [("ENUM_ARRAY_CHANGED", ("const",))]


def _required(new: dict[str, Any], old: dict[str, Any]) -> Found:
    ours, theirs = set(new.get("required") or ()), set(old.get("required") or ())
    schemas = new.get("properties", {})
    return [
        ("REQUIRED_ATTRIBUTE_ADDED", ("required", name))
        for name in old.get("properties", {})
        if name in schemas and name in ours and name not in theirs
        if not (isinstance(schemas[name], dict) and "default" in schemas[name])
    ]


def _bound(new: dict[str, Any], old: dict[str, Any], name: str, upper: bool) -> Found:
    """Compare a limit, which may not become stricter."""
    ours, theirs = _number(new.get(name)), _number(old.get(name))
    if ours is None or ours == theirs:
        return []
    kind = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)
    if theirs is None:
        return [(f"{kind}_ADDED", (name,))]
    if upper:
        return [(f"{kind}_DECREASED", (name,))] if ours < theirs else []
    return [(f"{kind}_INCREASED", (name,))] if ours > theirs else []


def _number(value: Any) -> Decimal | None:
    """A number, exactly. Draft 4 has booleans where later drafts have numbers; they do not count."""
    return Decimal(str(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _remainder(number: Decimal, other: Decimal) -> bool:
    """Whether something is left of a number that is divided by another one."""
    (above, below), (by, under) = number.as_integer_ratio(), other.as_integer_ratio()
    return (above * under) % (below * by) != 0


def _value(value: Any) -> str:
    """A value of JSON as a text that is the same for equal values."""
    return write_json(sorted_json(value))
