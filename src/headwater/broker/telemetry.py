"""Clients' own metrics (KIP-714): which clients are asked for which, and what they push.

Subscriptions are configs in the ledger. What a client was told is remembered for a while, by this broker only; a client
that comes to another broker is told anew.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from headwater import config
from headwater.clock import Chance, Clock
from headwater.errors import BadInput, CorruptBatch
from headwater.metadata.client_metrics import EVERYTHING, INTERVAL, KEYS, MATCH, METRICS, patterns
from headwater.metadata.config_keys import elements
from headwater.metadata.resources import ResourceKind, Resources
from headwater.types import Buffer
from headwater.wire.codecs import NAMES, decompress
from headwater.wire.varints import read_unsigned

if TYPE_CHECKING:
    from headwater.broker.registry import Request

log = logging.getLogger("headwater.telemetry")
OPENED = 8
"""A push may open to so many times as much as it may be."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PATH = (1, 2, 2, 1)
"""Where a metric's name lies in OTLP's MetricsData: resource, scope, metric, name."""
_RESERVED = (uuid.UUID(int=0), uuid.UUID(int=1))


class TooEarly(BadInput):
    """The client was told to wait longer."""


class UnknownSubscription(BadInput):
    """Not what the client was told last: it has to ask again."""


class UnknownCodec(BadInput):
    """A codec that does not exist."""


class TooLarge(BadInput):
    """More than a client may push."""


class Impossible(BadInput):
    """A push that no client may make."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client is to push, and how often."""

    client: uuid.UUID
    subscription: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class _Client:
    told: Told
    asked: float = float("-inf")
    pushed: float = float("-inf")
    over: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """A client's metrics, opened and looked over."""

    client: uuid.UUID
    attributes: Mapping[str, str]
    data: Buffer
    names: tuple[str, ...]


def attributes_of(request: Request) -> dict[str, str]:
    """What a subscription can choose clients by, but for the client's own id."""
    address, _, port = request.connection.peer.rpartition(":")
    name, version = request.connection.software
    return {
        "client_id": request.client_id,
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": address,
        "client_source_port": port,
    }


def log_push(push: Push) -> None:
    """The hook that is there by default."""
    log.debug("a client's metrics", extra={"client": dict(push.attributes), "metrics": push.names})


class Telemetry:
    """The clients that push metrics to one broker."""

    def __init__(
        self, settings: config.Quotas, clock: Clock, chance: Chance, hook: Callable[[Push], None] = log_push
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._hook = hook
        self._clients: OrderedDict[uuid.UUID, _Client] = OrderedDict()
        self.pushes = 0
        self.bytes = 0
        self.metrics = 0
        self.refused = 0

    def __repr__(self) -> str:
        return f"<Telemetry of {len(self._clients)} clients>"

    def subscribe(self, client: uuid.UUID | None, attributes: Mapping[str, str], resources: Resources) -> Told:
        """What a client is to push. A client without an id gets one."""
        identity = client if client is not None and client not in _RESERVED else self._chance.uuid()
        known = self._client(identity, attributes, resources)
        now = self._clock.monotonic()
        if (now - max(known.asked, known.pushed)) * 1000 < known.told.interval_ms:
            self.refused += 1
            raise TooEarly(f"Request from the client [{identity}] arrived before the next push interval time")
        known.asked = now
        return known.told

    def _client(self, identity: uuid.UUID, attributes: Mapping[str, str], resources: Resources) -> _Client:
        """A client, with what it is to push as things are now. One that is to push something else starts anew."""
        told = self._told(identity, attributes, resources)
        known = self._clients.get(identity)
        if known is None or known.told != told:
            known = self._clients[identity] = _Client(told)
            if len(self._clients) > self._settings.telemetry_clients:
                self._clients.popitem(last=False)
        self._clients.move_to_end(identity)
        return known

    def _told(self, identity: uuid.UUID, attributes: Mapping[str, str], resources: Resources) -> Told:
        everything = {**attributes, "client_instance_id": str(identity)}
        interval, metrics = int(KEYS[INTERVAL].default), set[str]()
        for name in resources.names(ResourceKind.CLIENT_METRICS):
            configs = resources.of(ResourceKind.CLIENT_METRICS, name)
            wanted = patterns(configs.get(MATCH, ""))
            if all(pattern.fullmatch(everything.get(key, "")) for key, pattern in wanted.items()):
                interval = min(interval, int(configs.get(INTERVAL, interval)))
                metrics.update(elements(configs.get(METRICS, "")))
        chosen = (EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics))
        number = crc32c(repr((chosen, interval)).encode()) ^ (identity.int & 0xFFFFFFFF)
        return Told(identity, number - (1 << 32) if number >> 31 else number, chosen, interval)

    def push(
        self,
        client: uuid.UUID | None,
        attributes: Mapping[str, str],
        resources: Resources,
        *,
        subscription: int,
        terminating: bool,
        codec: int,
        data: bytes,
    ) -> None:
        """Take a client's metrics, or say what is wrong with them."""
        try:
            self._push(client, attributes, resources, subscription, terminating, codec, data)
        except BadInput:
            self.refused += 1
            raise

    def _push(
        self,
        client: uuid.UUID | None,
        attributes: Mapping[str, str],
        resources: Resources,
        subscription: int,
        terminating: bool,
        codec: int,
        data: bytes,
    ) -> None:
        if client is None or client in _RESERVED:
            raise Impossible(f"Invalid request from the client [{client}], invalid client instance id")
        known = self._client(client, attributes, resources)
        was_over, known.over = known.over, terminating
        now = self._clock.monotonic()
        early = known.asked <= known.pushed and (now - known.pushed) * 1000 < known.told.interval_ms
        if was_over:
            raise Impossible(f"Client [{client}] sent its last request already")
        if early and not terminating:
            raise TooEarly(f"Request from the client [{client}] arrived before the next push interval time")
        known.pushed = now
        if subscription != known.told.subscription:
            raise UnknownSubscription(f"Unknown client subscription id for the client [{client}]")
        if codec not in NAMES:
            raise UnknownCodec(f"Unknown compression type [{codec}] is received in telemetry request from [{client}]")
        limit = self._settings.telemetry_bytes
        if len(data) > limit:
            raise TooLarge(f"Telemetry request from [{client}] is larger than the maximum allowed size [{limit}]")
        if data:
            opened = decompress(codec, data, limit * OPENED)
            names = metric_names(opened)
            self.pushes += 1
            self.bytes += len(data)
            self.metrics += len(names)
            self._hook(Push(client, attributes, opened, names))


def metric_names(data: Buffer) -> tuple[str, ...]:
    """The names of the metrics in OTLP's MetricsData; what is no such message is refused."""
    pieces = [memoryview(data)]
    for field in _PATH:
        pieces = [inner for piece in pieces for inner in _fields(piece, field)]
    try:
        return tuple(str(piece, "utf-8") for piece in pieces)
    except UnicodeDecodeError:
        raise CorruptBatch("a metric's name is no text") from None


def _fields(data: memoryview, wanted: int) -> list[memoryview]:
    """The embedded messages of one number in a message of protobuf's."""
    found, at = [], 0
    while at < len(data):
        tag, at = read_unsigned(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = read_unsigned(data, at)
        elif kind == _BYTES:
            size, at = read_unsigned(data, at)
            if size > len(data) - at:
                raise CorruptBatch("metrics are cut short")
            if tag >> 3 == wanted:
                found.append(data[at : at + size])
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise CorruptBatch(f"metrics with a field of kind {kind}")
    if at != len(data):
        raise CorruptBatch("metrics are cut short")
    return found
