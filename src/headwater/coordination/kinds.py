"""The kinds of groups. A new kind is a package that implements `Group`, and one line here."""

from __future__ import annotations

from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.group import Group
from headwater.errors import Halted

_ALL: tuple[type[Group], ...] = (
    ClassicGroup,
    ConsumerGroup,
)
KINDS: dict[str, type[Group]] = {kind.kind: kind for kind in _ALL}


def kind_of(name: str) -> type[Group]:
    """The kind of groups with this name in the ledger. Raises `Halted` if this version does not know the kind."""
    if name not in KINDS:
        raise Halted(f"a group in the ledger is of kind {name!r}; this version knows {', '.join(KINDS)}: upgrade it")
    return KINDS[name]
