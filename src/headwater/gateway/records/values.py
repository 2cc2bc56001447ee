"""Keys and values in JSON: which bytes a field of a document stands for, and which field bytes become.

A JSON string is text: its UTF-8 bytes. Any other JSON value stands for its own text without white space; numbers keep
their digits. Null is no key, or no value. Bytes that are not text have a field of their own, whose name ends in
`_base64`. So no document has two meanings, and what was read can be written again.
"""

from __future__ import annotations

import binascii
import enum
from base64 import b64decode, b64encode

import msgspec

from headwater.errors import BadInput

ABSENT = msgspec.Raw()
"""A field that is not in the document."""
NULL = msgspec.Raw(b"null")
_TEXT = msgspec.json.Decoder(str)
_PLAIN = (b'"', b"n")
"""How JSON texts begin that are not embedded: strings, and null."""


class Format(enum.Enum):
    """How bytes are shown."""

    TEXT = "text"
    """As text where they are UTF-8, else in base64."""
    JSON = "json"
    """As the object, list, number or boolean whose JSON text they are, else as `text`."""
    BASE64 = "base64"
    """In base64."""
    DECODED = "decoded"
    """As the value that they have by their schema, else as `text` with the reason. See `decoding.Decoding`."""
    BOTH = "both"
    """As `decoded`, and in base64 beside it."""

    @property
    def by_schema(self) -> bool:
        """Whether schemas are needed."""
        return self in (Format.DECODED, Format.BOTH)


def bytes_of(field: str, given: msgspec.Raw, in_base64: str | None) -> bytes | None:
    """The bytes of a field of a document, or of its `_base64` sibling. Raises `BadInput` if both are there."""
    raw = bytes(given)
    if in_base64 is not None:
        if raw:
            raise BadInput(f"`{field}` and `{field}_base64` exclude each other")
        return from_base64(f"{field}_base64", in_base64)
    if not raw or raw == b"null":
        return None
    if raw[:1] == b'"':
        return _TEXT.decode(raw).encode()
    return msgspec.json.format(raw, indent=-1)


def from_base64(field: str, text: str) -> bytes:
    """The bytes that base64 stands for, with or without padding, in the usual alphabet or in that of URLs."""
    padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    try:
        return b64decode(padded.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(f"`{field}` is not base64") from None


def shown(data: bytes | None, form: Format) -> tuple[msgspec.Raw, str | None]:
    """How bytes are shown: as a JSON value, or as base64 in the `_base64` sibling of the field."""
    if data is None:
        return NULL, None
    if form is Format.BASE64:
        return ABSENT, b64encode(data).decode()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ABSENT, b64encode(data).decode()
    if form is Format.JSON:
        embedded = _json(data)
        if embedded is not None:
            return embedded, None
    return msgspec.Raw(msgspec.json.encode(text)), None


def _json(data: bytes) -> msgspec.Raw | None:
    """The JSON text in bytes, on one line, unless it is a string or null: those would look like text or nothing."""
    if not data or data.lstrip(b" \t\r\n")[:1] in _PLAIN:
        return None
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return msgspec.Raw(msgspec.json.format(data, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return None
