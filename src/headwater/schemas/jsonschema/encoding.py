"""JSON values that a JSON Schema takes, as texts, and back."""

from __future__ import annotations

import json
from typing import Any

from headwater.errors import BadValue
from headwater.schemas.jsonschema.judging import TOO_MUCH, Validator
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.texts import step, write_json

PASSED_OVER = 100
"""After a value of a topic that took all of its time, so many that need a child process are not judged."""


class TooMuchWork(BadValue):
    """Judging a value needs more time or memory than it may have."""


class JsonCodec:
    """Encodes and decodes by one schema."""

    def __init__(self, model: JsonModel) -> None:
        self._validator = Validator(model.schema)
        self._passing = 0

    def encode(self, value: Any) -> bytes:
        """The text of a value. Raises `BadValue`, with the place, if the schema does not take it."""
        try:
            data = write_json(value).encode()
        except (ValueError, TypeError, RecursionError) as error:  # NaN, half characters, too deep
            raise BadValue(f"The value is no JSON: {error}"[:500]) from None
        self._check(value, len(data))
        return data

    def decode(self, data: bytes) -> Any:
        """The value of a text. Raises `BadValue` if it is no JSON, or if the schema does not take it."""
        try:
            value = json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise BadValue(f"The bytes are no JSON: {error}") from None
        if self._passing and not self._validator.is_plain(len(data)):
            self._passing -= 1
            raise TooMuchWork("The value is not judged: one before it took all of its time")
        try:
            self._check(value, len(data))
        except TooMuchWork:
            self._passing = PASSED_OVER
            raise
        return value

    def _check(self, value: Any, size: int) -> None:
        flaw = self._validator.flaw(value, size)
        if flaw is None:
            return
        if flaw[0] is None:
            kind = TooMuchWork if flaw[1] == TOO_MUCH else BadValue
            raise kind(f"The value cannot be judged by the schema: {flaw[1]}"[:500])
        place = ""
        for part in flaw[0]:
            place = step(place, part)
        raise BadValue(f"The value at {place or 'the top'} does not fit the schema: {flaw[1]}"[:500])
