"""SASL of servers: PLAIN, SCRAM and OAUTHBEARER, the renewal of log-ins, and the limit of failed log-ins.

An unknown user and a wrong password are handled alike: an unknown user gets a made-up salt, the proof is checked, and
the refusal is sent a fixed time after the message. No message to a client says which of the two was wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError, NotAuthenticated
from headwater.security.tokens import TokenRefused, Tokens
from headwater.settings.settings import ListenerSecurity, Security
from headwater.state.cluster.access import MIN_ITERATIONS, Access, Keys
from headwater.wire.scram import MECHANISMS, ScramFailed, ServerSide, derive_keys, salt_password

log = logging.getLogger("headwater.logins")
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
MAX_ADDRESSES = 10_000
MAX_MESSAGE_BYTES = 128 * 1024
MAX_PLAIN_CHARACTERS = 2_048
REMEMBER_SECONDS = 60.0
"""How long a right password is remembered."""
MAX_REMEMBERED = 1_000
TOO_MANY = "Too many failed log-ins from this address; try again later."


class LoginLimiter:
    """Limits failed log-ins per address. An attempt takes a token first, and gives it back if it succeeds."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._addresses: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def _left(self, network: str) -> float:
        left, since = self._addresses.get(network, (self._most, 0.0))
        return min(self._most, left + (self._clock.monotonic() - since) * self._most / 60)

    def take(self, host: str) -> bool:
        """Take a token for an attempt from an address. False if there is none: the attempt is refused unchecked."""
        network = network_of(host)
        left = self._left(network)
        if left < 1:
            return False
        self._keep(network, left - 1)
        return True

    def give_back(self, host: str) -> None:
        """Give back the token of an attempt that succeeded."""
        network = network_of(host)
        self._keep(network, min(self._most, self._left(network) + 1))

    def _keep(self, network: str, left: float) -> None:
        self._addresses[network] = (left, self._clock.monotonic())
        self._addresses.move_to_end(network)
        while len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)


def network_of(host: str) -> str:
    """The address; for IPv6 its /64 network, because one customer usually has all addresses of such a network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return host


@dataclass(frozen=True, slots=True)
class Granted:
    """A successful log-in: the principal, the message to the client, and the expiry of the credentials, if any."""

    principal: str
    message: bytes = b""
    expires_ms: int | None = None


class RightPasswords:
    """Passwords that were right a moment ago.

    Salted keys are slow to derive on purpose, which a caller who logs in again and again would have every process pay
    for. So a password that was right is remembered for a while, as a hash under a key that only this process has, and
    for as long as the user's keys stay.
    """

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self._key = logins.nonce().encode()
        self._kept: OrderedDict[bytes, tuple[dict[int, Keys], float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<RightPasswords, {len(self._kept)} remembered>"

    def _mark(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(name)}:{name}{password}".encode(), "sha256")

    def has(self, name: str, password: str) -> bool:
        """Whether the password was right, not long ago, and the user's keys are the same."""
        keys, until = self._kept.get(self._mark(name, password), ({}, 0.0))
        return until > self._logins.clock.monotonic() and keys == self._logins.stored(name)

    def keep(self, name: str, password: str) -> None:
        """Remember a password that is right."""
        until = self._logins.clock.monotonic() + REMEMBER_SECONDS
        mark = self._mark(name, password)
        self._kept[mark] = (self._logins.stored(name), until)
        self._kept.move_to_end(mark)
        while len(self._kept) > MAX_REMEMBERED:
            self._kept.popitem(last=False)


class Logins:
    """The shared part of all log-ins of one broker."""

    def __init__(
        self,
        security: Security,
        access: Access,
        clock: Clock,
        chance: Chance,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self.security = security
        self.clock = clock
        self.limiter = LoginLimiter(security.failed_logins_per_minute, clock)
        self.tokens = Tokens(security.oauth, clock)
        self.granted = 0
        self.refused = 0
        self._access = access
        self._chance = chance
        self._refresh = refresh
        self.right = RightPasswords(self)

    def __repr__(self) -> str:
        return f"<Logins, {self.granted} granted, {self.refused} refused>"

    def begin(self, listener: ListenerSecurity, host: str) -> Login:
        """Start the log-in of a connection."""
        return Login(self, listener, host)

    def nonce(self) -> str:
        """A random text that cannot be guessed."""
        return self._chance.uuid().hex + self._chance.uuid().hex

    async def _catch_up(self) -> None:
        try:
            await self._refresh()  # for known and unknown users alike, so that the time does not tell them apart
        except HeadwaterError:
            pass  # use the keys that this process has

    async def keys(self, mechanism: int, name: str) -> tuple[Keys, bool]:
        """A user's keys, and whether the user exists. The made-up keys of an unknown user are the same every time."""
        await self._catch_up()
        known = self._access.users.get(name, {}).get(mechanism)
        if known is not None:
            return known, True
        salt = hmac.digest(self._access.pepper or b"none", f"{mechanism}/{name}".encode(), "sha256")
        stored_key, server_key = derive_keys(mechanism, hashlib.sha256(salt).digest())
        return Keys(MIN_ITERATIONS, salt, stored_key, server_key), False

    def stored(self, name: str) -> dict[int, Keys]:
        """The keys of a user that this process knows, by mechanism; empty for an unknown user."""
        return dict(self._access.users.get(name, {}))

    async def check_password(self, name: str, password: str) -> bool:
        """Whether this is a user's password, by the user's keys for any mechanism."""
        await self._catch_up()
        if self.right.has(name, password):
            return True
        right = False
        for mechanism in MECHANISMS.values():
            keys, real = await self.keys(mechanism, name)
            salted = await asyncio.to_thread(salt_password, mechanism, password, keys.salt, keys.iterations)
            stored_key, _ = derive_keys(mechanism, salted)
            right |= hmac.compare_digest(stored_key, keys.stored_key) and real
        if right:
            self.right.keep(name, password)
        return right


class Login:
    """The log-in of one connection, step by step."""

    def __init__(self, logins: Logins, listener: ListenerSecurity, host: str) -> None:
        self._logins = logins
        self._host = host
        self.mechanisms = [mechanism.strip() for mechanism in listener.mechanisms.split(",")]
        self.principal: str | None = None
        """The principal; `None` before the first log-in."""
        self._mechanism = ""
        """The mechanism of the connection's first log-in. Later log-ins must use the same."""
        self._exchange: _Exchange | None = None
        self._expires: float | None = None
        self.busy = False

    def __repr__(self) -> str:
        return f"<Login of {self.principal or 'an unknown user'} from {self._host}>"

    def admits(self, api_key: int) -> bool:
        """Whether a request is handled now. Requests of a log-in are always handled, but one at a time."""
        if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return not self.busy
        if api_key == API_VERSIONS:
            return True
        if self.principal is None:
            return False
        return self._expires is None or self._logins.clock.monotonic() < self._expires

    def shake_hands(self, mechanism: str) -> bool:
        """Start with a mechanism. False if it is not offered, or is not the mechanism of the first log-in."""
        if mechanism not in self.mechanisms or self._mechanism not in ("", mechanism):
            return False
        self._exchange = _EXCHANGES[mechanism](self._logins, mechanism)
        return True

    @property
    def shaking(self) -> bool:
        """Whether a mechanism is agreed on, so that messages may follow."""
        return self._exchange is not None

    async def step(self, message: bytes) -> tuple[bytes, int]:
        """Answer a client's message. Returns the answer, and how many milliseconds the log-in is valid, 0 for ever."""
        began = self._logins.clock.monotonic()
        self.busy = True
        try:
            return await self._step(message)
        except (NotAuthenticated, ScramFailed, TokenRefused) as error:
            self._logins.refused += 1
            mechanism = self._exchange.mechanism if self._exchange is not None else ""
            log.warning("a log-in failed", extra={"address": self._host, "mechanism": mechanism, "reason": str(error)})
            delay = self._logins.security.failed_login_delay_ms / 1000
            await asyncio.sleep(max(0.0, began + delay - self._logins.clock.monotonic()))
            if isinstance(error, NotAuthenticated):
                raise
            raise NotAuthenticated(
                f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}"
            ) from None
        finally:
            self.busy = False

    async def _step(self, message: bytes) -> tuple[bytes, int]:
        if self._exchange is None or len(message) > MAX_MESSAGE_BYTES:
            raise NotAuthenticated("the client's message is unexpected or too large")
        limiter = self._logins.limiter
        if not limiter.take(self._host):
            raise NotAuthenticated(TOO_MANY)
        outcome = await self._exchange.answer(message)
        if not self._exchange.refused:
            limiter.give_back(self._host)
        if isinstance(outcome, bytes):
            return outcome, 0
        if self.principal not in (None, outcome.principal):
            raise NotAuthenticated(
                f"Cannot change principals during re-authentication from {self.principal}: {outcome.principal}"
            )
        self.principal, self._mechanism = outcome.principal, self._exchange.mechanism
        self._exchange = None
        self._logins.granted += 1
        return outcome.message, self._hold(outcome)

    def _hold(self, outcome: Granted) -> int:
        """Set and return how long the log-in is valid, by the settings and the token."""
        limits = [self._logins.security.session_ms] if self._logins.security.session_ms else []
        if outcome.expires_ms is not None:
            limits.append(max(1, outcome.expires_ms - self._logins.clock.wall_ms()))
        if not limits:
            self._expires = None
            return 0
        self._expires = self._logins.clock.monotonic() + min(limits) / 1000
        return min(limits)


class _Exchange:
    """The messages of one mechanism. Bytes continue the exchange, `Granted` is success, an error is failure."""

    refused = False
    """Whether the exchange has failed already, and only the answer to the client is left."""

    def __init__(self, logins: Logins, mechanism: str) -> None:
        self._logins = logins
        self.mechanism = mechanism

    async def answer(self, message: bytes) -> bytes | Granted:
        raise NotImplementedError


class _Plain(_Exchange):
    async def answer(self, message: bytes) -> Granted:
        try:
            authorized_as, name, password = message.decode().split("\0")
        except ValueError:
            raise NotAuthenticated("Invalid SASL/PLAIN response") from None
        if not name or not password or max(len(name), len(password)) > MAX_PLAIN_CHARACTERS:
            raise NotAuthenticated("Invalid SASL/PLAIN response: a user name and a password are needed")
        right = await self._logins.check_password(name, password)
        if not right or authorized_as not in ("", name):
            raise NotAuthenticated("Authentication failed: Invalid username or password")
        return Granted(f"User:{name}")


class _Scram(_Exchange):
    def __init__(self, logins: Logins, mechanism: str) -> None:
        super().__init__(logins, mechanism)
        self._number = MECHANISMS[mechanism]
        self._side = ServerSide(self._number, logins.nonce())
        self._found: tuple[str, Keys, bool] | None = None

    async def answer(self, message: bytes) -> bytes | Granted:
        if self._found is None:
            name = self._side.first(message)
            keys, real = await self._logins.keys(self._number, name)
            self._found = (name, keys, real)
            return self._side.challenge(keys.salt, keys.iterations)
        name, keys, real = self._found
        last = self._side.final(message, keys.stored_key, keys.server_key)
        if not real:
            raise ScramFailed("the user is not known")
        return Granted(f"User:{name}", last)


class _Bearer(_Exchange):
    async def answer(self, message: bytes) -> bytes | Granted:
        if self.refused:
            raise NotAuthenticated("the token was refused")
        token = _token_of(message)
        try:
            found = await self._logins.tokens.check(token)
        except TokenRefused as error:
            log.info("a token was refused", extra={"reason": str(error)})
            self.refused = True
            return b'{"status":"invalid_token"}'
        return Granted(f"User:{found.name}", expires_ms=found.expires_ms)


def _token_of(message: bytes) -> str:
    """The token in a client's first message (RFC 7628): `n,,` and key-value pairs, separated by bytes of value 1."""
    header, *pairs = message.split(b"\x01")
    if not header.startswith(b"n,") or len(pairs) < 2:
        raise NotAuthenticated("the OAUTHBEARER message is malformed")
    found = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
    kind, _, token = found.get(b"auth", b"").decode("ascii", "replace").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("the OAUTHBEARER message has no token")
    return token.strip()


_EXCHANGES: dict[str, type[_Exchange]] = {
    "PLAIN": _Plain,
    "SCRAM-SHA-256": _Scram,
    "SCRAM-SHA-512": _Scram,
    "OAUTHBEARER": _Bearer,
}
