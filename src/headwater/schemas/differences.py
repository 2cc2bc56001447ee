"""One difference that keeps a reader's schema from reading what was written with another schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two schemas, under the name that Confluent's registry has for it."""

    type: str
    place: str
    """The place in the schema: the path of the field, the keyword and so on."""
    text: str
    """What is wrong, with `{reader}` and `{writer}` for the two schemas."""
    info: str = ""
    """What the schemas say at this place."""

    def described(self, reader: str, writer: str) -> str:
        """The difference as the registry's verbose answers show it. `reader` and `writer` are `new` and `old`."""
        text = self.text.replace("{reader}", reader).replace("{writer}", writer)
        info = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.type}', description:'{text} at path {self.place}'{info}}}"
