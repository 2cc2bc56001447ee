"""Default values of Avro fields: whether one fits the type of its field."""

from __future__ import annotations

from typing import Any

from headwater.errors import BadSchema
from headwater.schemas.steps import Steps

MAX_STEPS = 1_000_000
"""The most comparisons of a part of a default with a type: each part is compared with each branch of a union."""

_BOUNDS = {"int": 1 << 31, "long": 1 << 63}


class Fitting:
    """Says whether values, as JSON, fit resolved types. It remembers answers, so its time is bounded."""

    def __init__(self, definitions: dict[str, dict[str, Any]]) -> None:
        self._definitions = definitions
        self._steps = Steps(MAX_STEPS, BadSchema(f"The defaults of the schema take more than {MAX_STEPS} steps"))
        self._answers: dict[tuple[int, int], bool] = {}

    def fits(self, value: Any, tree: Any) -> bool:
        """Whether a value fits a type. A union takes what one of its branches takes.

        A member of a record that the value lacks needs a default of its own, which is checked with its field.
        """
        self._steps.take()
        if isinstance(tree, list):
            return any(self.fits(value, branch) for branch in tree)
        if isinstance(tree, str):
            if tree not in self._definitions:
                return _primitive(value, tree)
            tree = self._definitions[tree]
        if not isinstance(value, (dict, list)):
            return _scalar(value, tree)
        known = (id(value), id(tree))
        if known not in self._answers:
            self._answers[known] = self._nested(value, tree)
        return self._answers[known]

    def _nested(self, value: Any, tree: dict[str, Any]) -> bool:
        kind = tree["type"]
        if kind == "array":
            return isinstance(value, list) and all(self.fits(one, tree["items"]) for one in value)
        if not isinstance(value, dict):
            return False
        if kind == "map":
            return all(self.fits(one, tree["values"]) for one in value.values())
        return kind in ("record", "error") and all(
            self.fits(value[field["name"]], field["type"]) if field["name"] in value else "default" in field
            for field in tree["fields"]
        )


def _scalar(value: Any, tree: dict[str, Any]) -> bool:
    # Avro's Java library takes any text as the default of these, so registries have schemas with wrong ones.
    return isinstance(value, str) if tree["type"] in ("enum", "fixed") else _primitive(value, tree["type"])


def _primitive(value: Any, kind: str) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
    if kind in ("float", "double"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind in ("bytes", "string") and isinstance(value, str)
