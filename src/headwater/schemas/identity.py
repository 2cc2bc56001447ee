"""The GUID of a schema, as Confluent's registry computes it: clients send it in headers of records."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

_RULES = ("migrationRules", "domainRules", "encodingRules")
_FIRST = ("name", "doc", "kind", "mode", "type")
_LAST = ("expr", "onSuccess", "onFailure")


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def guid(
    text: str,
    references: Iterable[tuple[str, str, int]] = (),
    metadata: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> uuid.UUID:
    """The GUID of a schema.

    `text` is the text that the registry keeps. References are name, subject and version. Metadata and rules are as the
    registry's HTTP API has them. The kind of the schema does not count.
    """
    digest = hashlib.md5(usedforsecurity=False)
    digest.update(text.encode())
    for name, subject, version in references:
        digest.update(name.encode() + subject.encode() + struct.pack(">i", version))
    if metadata is not None:
        digest.update(b"\1")
        _add_metadata(digest, metadata)
    if rules is not None:
        digest.update(b"\1")
        for family in _RULES:
            for rule in rules.get(family) or ():
                _add_rule(digest, rule)
        if rules.get("enableAt") is not None:
            digest.update(str(rules["enableAt"]).encode())
    return uuid.UUID(bytes=digest.digest())


def _add_metadata(digest: _Digest, metadata: Mapping[str, Any]) -> None:
    for tag, values in sorted((metadata.get("tags") or {}).items()):
        digest.update(tag.encode())
        _add_all(digest, sorted(values))
    for name, value in sorted((metadata.get("properties") or {}).items()):
        _add_all(digest, (name, value))
    _add_all(digest, sorted(metadata.get("sensitive") or ()))


def _add_rule(digest: _Digest, rule: Mapping[str, Any]) -> None:
    _add_all(digest, [rule[name] for name in _FIRST if rule.get(name) is not None])
    _add_all(digest, sorted(rule.get("tags") or ()))
    for name, value in sorted((rule.get("params") or {}).items()):
        _add_all(digest, (name, value))
    _add_all(digest, [rule[name] for name in _LAST if rule.get(name) is not None])
    if rule.get("disabled"):
        digest.update(b"\1")


def _add_all(digest: _Digest, texts: Sequence[str]) -> None:
    for text in texts:
        digest.update(text.encode())
