"""Metrics that clients push (KIP-714): which clients should push which metrics, and their pushes.

Subscriptions are configs in the ledger. Only this broker remembers, for a while, the subscription that it sent to a
client. Another broker sends it again.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from headwater.broker.errors import Coded
from headwater.broker.request import Request
from headwater.clock import Chance, Clock
from headwater.configs.client_metrics import EVERYTHING, INTERVAL, KEYS, MATCH, METRICS, patterns
from headwater.configs.keys import elements
from headwater.errors import BadInput, CorruptBatch
from headwater.settings import settings as config
from headwater.state.cluster.resources import ConfigResource, Resources
from headwater.threads import Offload, inline
from headwater.types import Buffer
from headwater.wire.codecs import NAMES, decompress
from headwater.wire.varints import read_unsigned

log = logging.getLogger("headwater.telemetry")
OPENED = 8
"""A push may decompress to this many times the limit on its size."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PATH = (1, 2, 2, 1)
"""The field numbers that lead to a metric's name in OTLP's MetricsData: resource, scope, metric, name."""
_RESERVED = (uuid.UUID(int=0), uuid.UUID(int=1))


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that a client should push, and how often."""

    client: uuid.UUID
    id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class _Client:
    subscription: Subscription
    asked: float = float("-inf")
    pushed: float = float("-inf")
    over: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """A client's metrics, decompressed and checked."""

    client: uuid.UUID
    attributes: Mapping[str, str]
    data: Buffer
    names: tuple[str, ...]


def attributes_of(request: Request) -> dict[str, str]:
    """The attributes by which a subscription selects clients, without the client's instance id."""
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
    """The default hook."""
    log.debug("a client's metrics", extra={"client": dict(push.attributes), "metrics": push.names})


class Telemetry:
    """The clients that push metrics to one broker."""

    def __init__(
        self,
        settings: config.Quotas,
        clock: Clock,
        chance: Chance,
        hook: Callable[[Push], None] = log_push,
        offload: Offload = inline,
    ) -> None:
        self._offload = offload
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

    def subscribe(self, client: uuid.UUID | None, attributes: Mapping[str, str], resources: Resources) -> Subscription:
        """The subscription of a client. A client without an id gets one."""
        identity = client if client is not None and client not in _RESERVED else self._chance.uuid()
        known = self._client(identity, attributes, resources)
        now = self._clock.monotonic()
        if (now - max(known.asked, known.pushed)) * 1000 < known.subscription.interval_ms:
            self.refused += 1
            raise Coded(
                ErrorCode.throttling_quota_exceeded,
                f"Request from the client [{identity}] arrived before the next push interval time",
            )
        known.asked = now
        return known.subscription

    def _client(self, identity: uuid.UUID, attributes: Mapping[str, str], resources: Resources) -> _Client:
        """A client with its current subscription. If the subscription changed, the client's entry starts over."""
        subscription = self._subscription(identity, attributes, resources)
        known = self._clients.get(identity)
        if known is None or known.subscription != subscription:
            known = self._clients[identity] = _Client(subscription)
            if len(self._clients) > self._settings.telemetry_clients:
                self._clients.popitem(last=False)
        self._clients.move_to_end(identity)
        return known

    def _subscription(self, identity: uuid.UUID, attributes: Mapping[str, str], resources: Resources) -> Subscription:
        everything = {**attributes, "client_instance_id": str(identity)}
        interval, metrics = int(KEYS[INTERVAL].default), set[str]()
        for name in resources.names(ConfigResource.CLIENT_METRICS):
            configs = resources.of(ConfigResource.CLIENT_METRICS, name)
            wanted = patterns(configs.get(MATCH, ""))
            if all(pattern.fullmatch(everything.get(key, "")) for key, pattern in wanted.items()):
                interval = min(interval, int(configs.get(INTERVAL, interval)))
                metrics.update(elements(configs.get(METRICS, "")))
        chosen = (EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics))
        number = crc32c(repr((chosen, interval)).encode()) ^ (identity.int & 0xFFFFFFFF)
        return Subscription(identity, number - (1 << 32) if number >> 31 else number, chosen, interval)

    async def push(
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
        """Accept a client's metrics, or raise an error that says what is wrong with them."""
        try:
            self._admit(client, attributes, resources, subscription, terminating, codec, data)
            if client is None or not data:
                return
            opened, names = await self._offload(_open, codec, data, self._settings.telemetry_bytes * OPENED)
        except Coded:
            self.refused += 1
            raise
        except BadInput as error:
            self.refused += 1
            raise Coded(ErrorCode.invalid_record, str(error)) from error
        self.pushes += 1
        self.bytes += len(data)
        self.metrics += len(names)
        self._hook(Push(client, attributes, opened, names))

    def _admit(
        self,
        client: uuid.UUID | None,
        attributes: Mapping[str, str],
        resources: Resources,
        subscription: int,
        terminating: bool,
        codec: int,
        data: bytes,
    ) -> None:
        """Raise the error for a push that is refused before it is opened."""
        if client is None or client in _RESERVED:
            raise Coded(
                ErrorCode.invalid_request, f"Invalid request from the client [{client}], invalid client instance id"
            )
        known = self._client(client, attributes, resources)
        was_over, known.over = known.over, terminating
        now = self._clock.monotonic()
        early = known.asked <= known.pushed and (now - known.pushed) * 1000 < known.subscription.interval_ms
        if was_over:
            raise Coded(ErrorCode.invalid_request, f"Client [{client}] sent its last request already")
        if early and not terminating:
            raise Coded(
                ErrorCode.throttling_quota_exceeded,
                f"Request from the client [{client}] arrived before the next push interval time",
            )
        known.pushed = now
        if subscription != known.subscription.id:
            raise Coded(ErrorCode.unknown_subscription_id, f"Unknown client subscription id for the client [{client}]")
        if codec not in NAMES:
            raise Coded(
                ErrorCode.unsupported_compression_type,
                f"Unknown compression type [{codec}] is received in telemetry request from [{client}]",
            )
        limit = self._settings.telemetry_bytes
        if len(data) > limit:
            raise Coded(
                ErrorCode.telemetry_too_large,
                f"Telemetry request from [{client}] is larger than the maximum allowed size [{limit}]",
            )


def _open(codec: int, data: bytes, limit: int) -> tuple[Buffer, tuple[str, ...]]:
    """The metrics of a push, decompressed, and their names. Takes seconds for a push that is made for that."""
    opened = decompress(codec, data, limit)
    return opened, metric_names(opened)


def metric_names(data: Buffer) -> tuple[str, ...]:
    """The names of the metrics in OTLP's MetricsData. Raises `CorruptBatch` for other bytes."""
    pieces = [memoryview(data)]
    for field in _PATH:
        pieces = [inner for piece in pieces for inner in _fields(piece, field)]
    try:
        return tuple(str(piece, "utf-8") for piece in pieces)
    except UnicodeDecodeError:
        raise CorruptBatch("a metric's name is not UTF-8") from None


def _fields(data: memoryview, wanted: int) -> list[memoryview]:
    """The embedded messages with one field number in a protobuf message."""
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
