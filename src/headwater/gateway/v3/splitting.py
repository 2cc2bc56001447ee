"""Cuts a stream of JSON objects, one after another with or without white space between them, into the objects."""

from __future__ import annotations

import re

from headwater.errors import BadInput, HeadwaterError
from headwater.gateway.problems import TOO_LARGE, Refusal

_VISIBLE = re.compile(rb"[^ \t\r\n]")
_BRACKET = re.compile(rb'["{}\[\]]')
_END_OF_TEXT = re.compile(rb'["\\]')
_OPENING = b"{["


class Splitter:
    """Takes bytes as they come, and gives the objects that are complete. It keeps at most one that is not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        self._begin = self._at = 0
        """Where the present object begins, and where the next search does."""
        self._depth = 0
        self._in_text = False
        self.flaw: HeadwaterError | None = None
        """Why nothing more can be cut: what comes after the last object is none, or is too large."""

    def __repr__(self) -> str:
        return f"<Splitter with {len(self._buffer)} bytes>"

    @property
    def size(self) -> int:
        """The bytes of the object that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that these bytes complete. There are no more once there is a `flaw`."""
        self._buffer += data
        found: list[bytes] = []
        while self.flaw is None and self._step(found):
            pass
        del self._buffer[: self._begin]
        self._at -= self._begin
        self._begin = 0
        if len(self._buffer) > self._most:
            self.flaw = Refusal(TOO_LARGE, f"a record has more than {self._most} bytes (gateway.body_bytes)")
        return found

    def end(self) -> None:
        """There are no more bytes. It is a flaw if the stream ends within an object."""
        if self._depth and self.flaw is None:
            self.flaw = BadInput("the body ends within a record")

    def _step(self, found: list[bytes]) -> bool:
        """Go on to the next character that matters; false if there is none."""
        pattern = _VISIBLE if not self._depth else _END_OF_TEXT if self._in_text else _BRACKET
        match = pattern.search(self._buffer, self._at)
        if match is None:
            self._at = max(self._at, len(self._buffer))
            if not self._depth:
                self._begin = self._at
            return False
        mark, self._at = match[0], match.end()
        if not self._depth:
            if mark != b"{":
                self.flaw = BadInput(f"a record is a JSON object; there is {mark.decode('latin-1')!r} instead")
                return False
            self._begin, self._depth = match.start(), 1
        elif self._in_text:
            if mark == b"\\":
                self._at += 1  # the next byte does not end the text
            else:
                self._in_text = False
        elif mark == b'"':
            self._in_text = True
        elif mark in _OPENING:
            self._depth += 1
        else:
            self._depth -= 1
            if not self._depth:
                return self._complete(found)
        return True

    def _complete(self, found: list[bytes]) -> bool:
        if self._at - self._begin > self._most:
            return False  # `feed` sees that it is too large
        found.append(bytes(self._buffer[self._begin : self._at]))
        self._begin = self._at
        return True
