"""Pages of listings: a limit, and an opaque cursor that leads to the next page.

Items have a key and are sorted by it. A cursor names the key of the last item, so a listing that changes while it is
read shows every item that was there all the time exactly once.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from litestar.params import QueryParameter

from headwater.gateway.problems import BAD_REQUEST, Refusal

DEFAULT_ITEMS = 100
MAX_CURSOR = 2_048
MAX_KEY = 250
"""Characters of a key that go into a cursor as they are."""
T = TypeVar("T")
Key = str | int
Limit = Annotated[
    int, QueryParameter(ge=1, description="Items of the page at most. The gateway may give fewer, up to its own limit.")
]
"""The type of the parameter `limit` of a listing."""
Next = Annotated[
    str, QueryParameter(name="next", max_length=MAX_CURSOR, description="The cursor `next` of the page before.")
]
"""The type of the parameter `cursor` of a listing, `next` in the query."""


class Listing(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """A page of a listing."""

    items: list[T]
    """The items, in the order of the listing."""
    next: str | None = None
    """The cursor of the next page; missing on the last page."""


def paged(
    of: str, found: Sequence[T], key: Callable[[T], Key], *, limit: int, cursor: str, most: int
) -> tuple[list[T], str | None]:
    """A page of items that are sorted by their keys, and the cursor of the next page. `of` names the listing."""
    begin = 0
    if cursor and found:
        after = key_of(of, cursor, type(key(found[0])))
        begin = bisect_right(found, after, key=key)
    count = min(limit, most)
    items = list(found[begin : begin + count])
    more = begin + count < len(found)
    return items, cursor_of(of, key(items[-1])) if more and items else None


def bounded(text: str) -> str:
    """A key for items whose names may be longer than a cursor: the beginning, and a digest of the whole."""
    if len(text) <= MAX_KEY:
        return text
    return f"{text[:MAX_KEY]}\0{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def cursor_of(of: str, key: Key) -> str:
    """The cursor that leads behind the item with a key. `of` names the listing."""
    return urlsafe_b64encode(msgspec.json.encode((of, key))).rstrip(b"=").decode()


def key_of(of: str, cursor: str, kind: type[Key]) -> Key:
    """The key in a cursor of a listing. Raises a refusal if it is none."""
    try:
        data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        listing, key = msgspec.json.decode(data, type=tuple[str, Key])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Refusal(BAD_REQUEST, "`next` is not a cursor of this listing") from None
    if listing != of or type(key) is not kind:
        raise Refusal(BAD_REQUEST, "`next` is not a cursor of this listing")
    return key
