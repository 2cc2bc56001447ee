"""A JSON Schema as the rest of the room uses it: one document, in which every `$ref` is a pointer into itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.schemas.jsonschema import judging
from headwater.schemas.jsonschema.bundling import Bundler
from headwater.schemas.texts import read_json, refuse, sorted_json, step, write_json

DRAFTS = {
    "json-schema.org/draft-04/schema": "4",
    "json-schema.org/draft-06/schema": "6",
    "json-schema.org/draft-07/schema": "7",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
"""The drafts that are known, by the addresses of their metaschemas."""

_URIS = {draft: f"http{'s' if '/draft/' in address else ''}://{address}" for address, draft in DRAFTS.items()}


@dataclass(frozen=True, slots=True)
class JsonModel:
    """A JSON Schema with its references put in."""

    schema: Any
    """An object, or a boolean. Every `$ref` in it is a pointer (`#/...`) that `jsonschema.bundling.follow` follows, and
    `$schema` says the draft. There is no `$id` and no anchor."""
    draft: str
    """`4`, `6`, `7`, `2019-09` or `2020-12`. Up to draft 7, members beside a `$ref` do not count."""


def parse(text: str, references: tuple[tuple[str, str], ...]) -> tuple[str, str, JsonModel]:
    """The canonical text, the normalized text and the model of a JSON Schema."""
    where = "The JSON Schema"
    schema = read_json(where, text)
    # The texts come first, because bundling may change the value.
    canonical, normalized = write_json(schema), write_json(sorted_json(schema))
    draft = _draft_of(schema)
    _check(where, schema, draft, len(text))
    others: list[tuple[str, Any]] = []
    for name, one in references:
        there = f"Reference {name!r}"
        value = read_json(there, one)
        _check(there, value, draft, len(one))
        others.append((name, value))
    whole = Bundler(schema, others, old=draft in ("4", "6", "7")).bundled()
    if isinstance(whole, dict):
        whole["$schema"] = _URIS[draft]
    size = len(text) + sum(len(one) for _, one in references)
    _refuse(where, judging.flaw_of_compiling(whole, size))
    return canonical, normalized, JsonModel(whole, draft)


def _draft_of(schema: object) -> str:
    """The draft that a schema names. Without one that is known it is draft 7, as in Confluent's registry."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return "7"
    return DRAFTS.get(named.partition("://")[2].rstrip("#"), "7")


def _check(where: str, schema: Any, draft: str, size: int) -> None:
    """Refuse what the metaschema of the draft refuses."""
    if not isinstance(schema, (dict, bool)):
        refuse(where, "", "a JSON Schema is an object or a boolean")
    if isinstance(schema, dict):
        _refuse(where, judging.flaw_of({**schema, "$schema": _URIS[draft]}, size))


def _refuse(where: str, flaw: list[Any] | None) -> None:
    """Raise a flaw that was found, if there is one: its place, or None, and the flaw."""
    if flaw is None:
        return
    place = ""
    for part in flaw[0] or ():
        place = step(place, part)
    refuse(where, place, flaw[1])
