"""What the differences between JSON Schemas mean, in words."""

from __future__ import annotations

_ADDED = "the keyword in the {reader} schema is not in the {writer} schema"
_MORE = "the value in the {reader} schema is more than that in the {writer} schema"
_LESS = "the value in the {reader} schema is less than that in the {writer} schema"
_OTHER = "the value in the {reader} schema is not that of the {writer} schema"
_TYPE = "the type in the {reader} schema does not match the {writer} schema"
_FEWER = "the {reader} schema takes less than the {writer} schema"
_DEMANDS = "the {reader} schema demands more than the {writer} schema"
_OPEN = "the {reader} schema names a member that the {writer} schema, which is open, does not name"
_NEEDED = "the {reader} schema requires a member that the {writer} schema lacks"
_LACKED = "the {reader} schema, which is closed, lacks a member of the {writer} schema"
_GONE = "the {reader} schema lacks a member of the {writer} schema, and its schema for others does not cover it"
_NEW = "the {reader} schema has a member that the {writer} schema covers only by its schema for others"

_UPPER = ("MAX_LENGTH", "MAXIMUM", "EXCLUSIVE_MAXIMUM", "MAX_PROPERTIES", "MAX_ITEMS", "MAX_CONTAINS")
_LOWER = ("MIN_LENGTH", "MINIMUM", "EXCLUSIVE_MINIMUM", "MIN_PROPERTIES", "MIN_ITEMS", "MIN_CONTAINS")
_MEMBERS = ("PROPERTY", "ITEM")
_CLOSED = ("ADDITIONAL_PROPERTIES", "ADDITIONAL_ITEMS", "UNEVALUATED_PROPERTIES", "UNEVALUATED_ITEMS")

TEXTS = {
    **{f"{name}_ADDED": _ADDED for name in (*_UPPER, *_LOWER, "PATTERN", "MULTIPLE_OF", "UNIQUE_ITEMS", "SCHEMA")},
    **{f"{name}_DECREASED": _LESS for name in _UPPER},
    **{f"{name}_INCREASED": _MORE for name in _LOWER},
    **{f"{name}_REMOVED": "the {reader} schema takes no other members, the {writer} schema does" for name in _CLOSED},
    **{f"{name}_NARROWED": "the {reader} schema limits other members more than the {writer} one" for name in _CLOSED},
    **dict.fromkeys(("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "ENUM_ARRAY_CHANGED"), _OTHER),
    **dict.fromkeys(("TYPE_CHANGED", "TYPE_NARROWED", "COMBINED_TYPE_CHANGED"), _TYPE),
    "MULTIPLE_OF_EXPANDED": _MORE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "parts of the {reader} schema's combination do not match the {writer} one",
    **dict.fromkeys(("ENUM_ARRAY_NARROWED", "SUM_TYPE_NARROWED", "NOT_TYPE_EXTENDED"), _FEWER),
    **dict.fromkeys(("PRODUCT_TYPE_EXTENDED", "DEPENDENCY_ARRAY_EXTENDED", "DEPENDENCY_ARRAY_CHANGED"), _DEMANDS),
    **dict.fromkeys(("DEPENDENCY_ARRAY_ADDED", "DEPENDENCY_SCHEMA_ADDED", "REQUIRED_ATTRIBUTE_ADDED"), _DEMANDS),
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _NEEDED,
    **{f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL": _LACKED for what in _MEMBERS},
    **{f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _GONE for what in _MEMBERS},
    **{f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NEW for what in _MEMBERS},
}
"""By the name of a difference."""
