"""The state of domains 1 to N: the list of its parts. A new capability is a module with a `PART`, and a line here."""

from __future__ import annotations

from typing import Any, ClassVar

from headwater.state.machine import Part
from headwater.state.streams import (
    append,
    groups,
    heads,
    holds,
    letters,
    mirrors,
    once,
    reserve,
    settle,
    transactions,
    typed,
)
from headwater.state.streams.domain import StreamsDomain


class StreamsState(StreamsDomain):
    """The fold of a domain that holds streams."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = (
        heads.PART,
        append.PART,
        reserve.PART,  # before settle: a reservation that ends may still enter its table's journal
        settle.PART,
        groups.PART,
        transactions.PART,
        once.PART,
        holds.PART,
        mirrors.PART,
        letters.PART,
        typed.PART,
    )
