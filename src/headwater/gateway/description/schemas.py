"""JSON Schemas (2020-12) of bodies, answers and parameters, from their types.

The string below a field is its description, as it is for readers of the code.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as types

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
_BOUNDS = (("ge", "minimum"), ("le", "maximum"), ("gt", "exclusiveMinimum"), ("lt", "exclusiveMaximum"))
_LENGTHS = (("min_length", "minLength"), ("max_length", "maxLength"), ("pattern", "pattern"))
_COUNTS = (("min_length", "minItems"), ("max_length", "maxItems"))


class Schemas:
    """The schemas of a document. Structs become components, by name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._structs: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<Schemas of {len(self.components)} structs>"

    def of(self, kind: Any) -> Schema:
        """The schema of a type."""
        return self._of(types.type_info(kind))

    def _of(self, info: types.Type) -> Schema:
        for family, make in self._makers().items():
            if isinstance(info, family):
                return make(info)
        raise TypeError(f"no schema is known for {info}")

    def _makers(self) -> dict[type[types.Type], Callable[[Any], Schema]]:
        return {
            types.Metadata: lambda info: {**self._of(info.type), **(info.extra_json_schema or {})},
            types.AnyType: lambda info: {},
            types.RawType: lambda info: {},
            types.NoneType: lambda info: {"type": "null"},
            types.BoolType: lambda info: {"type": "boolean"},
            types.IntType: lambda info: {"type": "integer", **_limits(info, _BOUNDS)},
            types.FloatType: lambda info: {"type": "number", **_limits(info, _BOUNDS)},
            types.StrType: lambda info: {"type": "string", **_limits(info, _LENGTHS)},
            types.DateTimeType: lambda info: {"type": "string", "format": "date-time"},
            types.LiteralType: lambda info: {"enum": list(info.values)},
            types.EnumType: lambda info: {"enum": [one.value for one in info.cls]},
            types.UnionType: self._union,
            types.ListType: self._list,
            types.VarTupleType: self._list,
            types.TupleType: lambda info: {
                "type": "array",
                "prefixItems": [self._of(item) for item in info.item_types],
                "minItems": len(info.item_types),
                "maxItems": len(info.item_types),
            },
            types.DictType: self._dict,
            types.StructType: self._struct,
        }

    def _union(self, info: types.UnionType) -> Schema:
        return {"anyOf": [self._of(one) for one in info.types]}

    def _list(self, info: types.ListType | types.VarTupleType) -> Schema:
        return {"type": "array", "items": self._of(info.item_type), **_limits(info, _COUNTS)}

    def _dict(self, info: types.DictType) -> Schema:
        named = {"type": "object", "additionalProperties": self._of(info.value_type)}
        return {**named, "propertyNames": {"pattern": "^[0-9]+$"}} if _is_number(info.key_type) else named

    def _struct(self, info: types.StructType) -> Schema:
        name = _name(info)
        known = self._structs.setdefault(name, info.cls)
        if known != info.cls:
            raise ValueError(f"two structs have the name {name!r} in the OpenAPI document")
        if name not in self.components:
            told = meanings(_origin(info.cls))
            schema: Schema = {"type": "object", "description": inspect.getdoc(_origin(info.cls)) or ""}
            self.components[name] = schema  # before its fields: a struct may contain itself
            schema["properties"] = {field.encode_name: self._field(field, told) for field in info.fields}
            schema["required"] = [field.encode_name for field in info.fields if field.required]
            if info.forbid_unknown_fields:
                schema["additionalProperties"] = False
        return {"$ref": PREFIX + name}

    def _field(self, field: types.Field, told: dict[str, str]) -> Schema:
        schema = self._of(field.type)
        if field.name in told:
            schema = {**schema, "description": told[field.name]}
        if isinstance(field.default, str | int | float | bool):
            schema = {**schema, "default": field.default}
        return schema


def without_null(schema: Schema) -> Schema:
    """The schema of a parameter that may be missing: nobody sends null in a query."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not kept:
        return schema
    return kept[0] if len(kept) == 1 else {**schema, "anyOf": kept}


@cache
def meanings(struct: type) -> dict[str, str]:
    """The strings below the fields of a class, by field. Empty if its source is not there."""
    found: dict[str, str] = {}
    for node in _bodies(struct.__module__).get(struct.__name__, ()):
        for field, below in zip(node.body, node.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(below.value.value)).replace("\n", " ")
    return found


@cache
def _bodies(module: str) -> dict[str, list[ast.ClassDef]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, SyntaxError):
        return {}
    return {node.name: [node] for node in tree.body if isinstance(node, ast.ClassDef)}


def _limits(info: Any, names: tuple[tuple[str, str], ...]) -> Schema:
    return {told: getattr(info, own) for own, told in names if getattr(info, own, None) is not None}


def _is_number(info: types.Type) -> bool:
    return isinstance(info.type if isinstance(info, types.Metadata) else info, types.IntType)


def _origin(cls: Any) -> type[msgspec.Struct]:
    """The class itself, also of one with parameters."""
    found: type[msgspec.Struct] = getattr(cls, "__origin__", cls)
    return found


def _name(info: types.StructType) -> str:
    """`TopicLine`; `ListingOfTopicLine` for a class with a parameter."""
    parameters = getattr(info.cls, "__args__", ())
    return "Of".join([_origin(info.cls).__name__, *(one.__name__ for one in parameters)])
