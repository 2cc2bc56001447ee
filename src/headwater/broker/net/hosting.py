"""What a connection uses of its server, and one request of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from headwater.broker.broker import Broker
from headwater.broker.net.admission import Admission
from headwater.broker.registry import Api, RequestKind
from headwater.broker.request import Pending, Values
from headwater.errors import CorruptFrame
from headwater.security.quotas import Meter
from headwater.types import Buffer
from headwater.wire.messages import RequestStart, known_versions

C = TypeVar("C", contravariant=True)


class Host(Protocol[C]):
    """The part of the server that its connections use."""

    @property
    def broker(self) -> Broker:
        """The broker that handlers work with."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of all connections."""

    @property
    def scratch(self) -> memoryview:
        """The buffer that all connections receive into."""

    @property
    def draining(self) -> bool:
        """Whether the broker is being stopped and reads no more requests."""

    def admit(self, connection: C, address: str) -> Admission:
        """Decide whether a new connection is accepted."""

    def released(self, connection: C, address: str | None) -> None:
        """A connection is closed; `address` is None if it was not accepted."""


class Slot:
    """One request of a connection. Slots are in the order of arrival."""

    __slots__ = ("began", "charged", "done", "kind", "later", "meter", "pending", "pieces", "size", "start", "values")

    def __init__(self, start: RequestStart, size: int, kind: RequestKind, began: float) -> None:
        self.start = start
        self.size = size
        self.kind = kind
        self.later: Callable[[], None] | None = None
        """What begins the request once all before it are answered, if it turned out that it changes something."""
        self.charged = 0
        """The bytes that the broker counts for the request itself, without those that the write path counts."""
        self.pending: Pending | None = None
        self.began = began
        self.done = False
        self.meter: Meter | None = None
        self.values: Values | None = None
        self.pieces: list[Buffer] | None = None
        """The encoded answer, if it was long. A short one is encoded when it is sent."""


def address_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """The address of the peer, without and with its port."""
    peer = transport.get_extra_info("peername")
    return (str(peer[0]), f"{peer[0]}:{peer[1]}") if isinstance(peer, tuple) else (str(peer), str(peer))


def not_served(api: Api | None, start: RequestStart) -> CorruptFrame:
    """The error for a request whose API or version is not served."""
    known = f"versions {api.versions[0]} to {api.versions[-1]}" if api is not None else "no version"
    if known_versions(start.api_key) or api is not None:
        return CorruptFrame(f"API {start.api_key} v{start.version} is not served here; served: {known}")
    return CorruptFrame(f"API {start.api_key} does not exist")
