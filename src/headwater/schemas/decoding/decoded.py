"""What a decoder gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Decoded:
    """Payloads as an Arrow array. A null payload is a null; so is a bad one, whose flaw is in `errors`."""

    array: pa.Array
    errors: dict[int, str] = field(default_factory=dict)
    """By row, why the payload cannot be decoded."""
