"""Status and code of a cloud store's answer, read from the text of the library's error, which has no fields for them.

The text also contains addresses, signatures and the server's own words. None of that leaves this module: an address may
contain a token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_KIND = re.compile(r"inner: Http\(\s*HttpError \{\s*kind: (\w+)")
_BEYOND = re.compile(r"source: StartTooLarge \{")
_WAITING = frozenset((408, 409, 423, 425, 429))
"""Statuses below 500 after which the same request may succeed."""
_SPOILT = frozenset(("BadDigest", "Md5Mismatch", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"))
"""The store's codes for bytes that were damaged on the way. It has stored nothing."""
INSUFFICIENT_STORAGE = 507
RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status and the store's own code, or the reason why there is none."""

    name: str
    status: int
    code: str
    kind: str
    beyond: bool

    @classmethod
    def of(cls, error: Exception) -> Answer:
        text = str(error)
        status, code, kind = _STATUS.search(text), _CODE.search(text), _KIND.search(text)
        return cls(
            type(error).__name__,
            int(status[1]) if status else 0,
            code[1] if code else "",
            kind[1] if kind and not status else "",
            not status and bool(_BEYOND.search(text)),
        )

    def __str__(self) -> str:
        if self.status:
            return f"the store answered {self.status} {self.code}".rstrip()
        return f"no answer ({self.kind})" if self.kind else self.name

    @property
    def nothing_done(self) -> bool:
        """Whether certainly nothing was stored: the connection failed, or the bytes were damaged."""
        return self.kind == "Connect" or self.code in _SPOILT

    @property
    def refused(self) -> bool:
        """Whether the store understood the request and would refuse a retry too."""
        passing = self.status in _WAITING or self.code in _SPOILT or self.code == "RequestTimeout"
        return 400 <= self.status < 500 and not passing

    @property
    def full(self) -> bool:
        return self.status == INSUFFICIENT_STORAGE

    @property
    def beyond_the_end(self) -> bool:
        """Whether the object exists and ends before the requested range."""
        return self.status == RANGE_NOT_SATISFIABLE or self.beyond
