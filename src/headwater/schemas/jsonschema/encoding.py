"""JSON values that a JSON Schema takes, as texts, and back."""

from __future__ import annotations

import json
from typing import Any

from headwater.errors import BadValue
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.texts import step, write_json


class JsonCodec:
    """Encodes and decodes by one schema."""

    def __init__(self, model: JsonModel) -> None:
        import jsonschema_rs

        self._validator = jsonschema_rs.validator_for(model.schema, offline=True)

    def encode(self, value: Any) -> bytes:
        """The text of a value. Raises `BadValue`, with the place, if the schema does not take it."""
        self._check(value)
        try:
            return write_json(value).encode()
        except (ValueError, RecursionError) as error:  # NaN, half characters, too deep
            raise BadValue(f"The value is no JSON: {error}") from None

    def decode(self, data: bytes) -> Any:
        """The value of a text. Raises `BadValue` if it is no JSON, or if the schema does not take it."""
        try:
            value = json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise BadValue(f"The bytes are no JSON: {error}") from None
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = ""
            for part in error.instance_path:
                place = step(place, part)
            raise BadValue(
                f"The value at {place or 'the top'} does not fit the schema: {error.message}"[:500]
            ) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise BadValue(f"The value is no JSON: {error}"[:500]) from None
