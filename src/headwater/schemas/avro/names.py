"""Names of Avro: what a name may look like, and what a name means inside a namespace."""

from __future__ import annotations

import re

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

NAMED = frozenset({"record", "error", "enum", "fixed"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_name(text: object) -> bool:
    """Whether a text may name a field, a symbol or a type, without a namespace."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Whether a text may be a namespace: names with dots between them, or nothing."""
    return text == "" or all(is_name(part) for part in text.split("."))


def full_name(name: str, namespace: str) -> str:
    """The full name of what a schema inside a namespace calls `name`."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def namespace_of(full: str) -> str:
    """The namespace of a full name."""
    return full.rpartition(".")[0]


def short_name(full: str, namespace: str) -> str:
    """How a schema inside a namespace calls the type with this full name."""
    space, _, name = full.rpartition(".")
    return name if space == namespace and name not in PRIMITIVES else full
