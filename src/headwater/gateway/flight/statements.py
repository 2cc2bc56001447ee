"""Handles of prepared statements and of queries. A handle holds the whole statement, so that a gateway keeps nothing.

Any gateway takes a handle of any other, before and after a restart. A handle is no secret and grants no rights: what it
asks is checked for the caller who sends it, like any statement.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from headwater.errors import BadInput
from headwater.query.asking import Value

VALUES = get_args(Value)


class Prepared(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A statement, and the values of its parameters as far as they are bound."""

    sql: str
    values: tuple[Any, ...] = ()
    """Each is a `Value`."""

    def __post_init__(self) -> None:
        if any(not isinstance(value, VALUES) for value in self.values):
            raise ValueError("a value has a type that no parameter has")


class Ticket(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A query that is about to be asked. The name is that by which its caller may cancel it."""

    name: str
    statement: Prepared


def encode(found: Prepared | Ticket) -> bytes:
    """A handle."""
    return msgspec.msgpack.encode(found)


def prepared_of(handle: bytes) -> Prepared:
    """The statement of a handle."""
    try:
        return msgspec.msgpack.decode(handle, type=Prepared)
    except msgspec.MsgspecError:
        raise BadInput("this is no handle of a prepared statement that a gateway has given") from None


def ticket_of(handle: bytes) -> Ticket:
    """The query of a ticket."""
    try:
        return msgspec.msgpack.decode(handle, type=Ticket)
    except msgspec.MsgspecError:
        raise BadInput("this is no ticket that a gateway has given") from None
