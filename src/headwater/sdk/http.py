"""Requests to a gateway, by the standard library: connections that are kept, retries, and errors in our own words.

A request is repeated only if that cannot do harm: nothing was sent, the gateway says that nothing was changed, or the
request is one that may be repeated (a read, or an append with an idempotency key).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.descriptors import readable
from headwater.errors import (
    BadInput,
    ConfigError,
    Conflict,
    Damaged,
    Exists,
    HeadwaterError,
    Mirrored,
    NoEngine,
    NoRecord,
    NotAllowed,
    NotFound,
    NotReady,
    OutcomeUnknown,
    Overloaded,
    QueryCancelled,
    QueryFailed,
    QueryLimit,
    Retriable,
    StatementRefused,
    StoreFull,
    TooLarge,
)
from headwater.version import __version__

KEPT = 8
"""Connections that are kept for later requests."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two attempts: at first, and at most."""
ANSWER_SECONDS = 60.0
"""How long a gateway may be silent before its answer is given up."""
MAX_ANSWER = 256 << 20
"""Bytes of an answer that is read whole."""
_LOST = (http.client.HTTPException, OSError)


class _NotSent(NotReady):
    """There is no connection. Nothing was sent."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        """The document of the answer."""
        return msgspec.json.decode(self.data)


@dataclass(frozen=True, slots=True)
class Login:
    """Who calls, and whose certificates are trusted."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None


class Http:
    """A gateway, by its URL. Several threads may use it."""

    def __init__(
        self,
        url: str,
        login: Login | None = None,
        *,
        timeout: float = 30.0,
        clock: Clock | None = None,
        waits: bool = True,
    ) -> None:
        """With `waits`, a gateway that is not there yet is waited for, as one that went away always is."""
        login = login or Login()
        user, password, token, ca = login.user, login.password, login.token, login.ca
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} is not the URL of a gateway: it has the form http://HOST:PORT")
        if parts.username or parts.password:
            raise ConfigError("a user does not belong into the URL: give `user` and `password`")
        if (user is None) != (password is None) or (token is not None and user is not None):
            raise ConfigError("give `user` and `password`, or `token`, or none of them")
        if (user is not None or token is not None) and parts.scheme == "http" and not _loopback(parts.hostname):
            raise ConfigError(f"{url!r} would carry a password or token unencrypted: use https://")
        try:
            self._address = (parts.hostname, parts.port)
        except ValueError as error:
            raise ConfigError(f"{url!r}: {error}") from None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.timeout = timeout
        self._expected = waits
        """Whether a gateway that refuses the connection may be there soon."""
        self.clock = clock or SystemClock()
        self._base = parts.path.rstrip("/")
        self._tls = _context(ca) if parts.scheme == "https" else None
        self._headers = {"User-Agent": f"headwater-python/{__version__}"}
        if user is not None:
            self._headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: deque[http.client.HTTPConnection] = deque(maxlen=KEPT)

    def __repr__(self) -> str:
        return f"<Http {self.url}>"

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """The document at a path."""
        return self.request("GET", path, query=query, repeat=True).json()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool,
    ) -> Answer:
        """Send a request until it is answered or time is up. Errors are raised.

        `repeat` says whether it may be sent again after an attempt whose outcome is unknown.
        """
        target = self._base + path + (f"?{urlencode(query)}" if query else "")
        give_up = self.clock.monotonic() + self.timeout
        pause, unknown = FIRST_PAUSE, False
        while True:
            try:
                answer = self._once(method, target, body, headers or {})
                if answer.status < 400:
                    return answer
                raise problem(answer.status, answer.data)
            except HeadwaterError as error:
                if self._is_absent(error):
                    raise
                unknown = unknown or isinstance(error, OutcomeUnknown)
                again = isinstance(error, Retriable) and (repeat or not isinstance(error, OutcomeUnknown))
                if not again or self.clock.monotonic() + pause >= give_up:
                    if unknown and isinstance(error, Retriable) and not isinstance(error, OutcomeUnknown):
                        raise OutcomeUnknown(f"an earlier attempt may have taken effect; then: {error}") from error
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, object],
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        silence: float = ANSWER_SECONDS,
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read bit by bit, on a connection of its own.

        With a body it is a POST, which is sent again only if nothing was done. `silence` is how many seconds the
        gateway may send nothing.
        """
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        give_up, pause = self.clock.monotonic() + self.timeout, FIRST_PAUSE
        while True:
            connection = self._connect(silence)
            try:
                response = self._sent(connection, "GET" if body is None else "POST", target, body, headers)
                if response.status < 400:
                    break
                raise problem(response.status, response.read(MAX_ANSWER))
            except Retriable as error:
                connection.close()
                lost = body is not None and isinstance(error, OutcomeUnknown)
                if lost or self._is_absent(error) or self.clock.monotonic() + pause >= give_up:
                    raise
            except BaseException:
                _reset(connection)
                raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        try:
            yield response
        except _LOST as error:
            raise NotReady(f"the answer of {self.url} ended early: {_words(error)}") from error
        finally:
            connection.close()

    def _is_absent(self, error: HeadwaterError) -> bool:
        """Whether the gateway was not there, and nobody waits for its start."""
        return isinstance(error, _NotSent) and not self._expected

    def _once(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = self._take()
        try:
            response = self._sent(connection, method, target, body, headers)
            data = response.read(MAX_ANSWER + 1)
            if len(data) > MAX_ANSWER:
                raise BadInput(f"the answer has more than {MAX_ANSWER} bytes: ask for less")
            if response.length:  # `read` with a limit does not tell of an end that came too early
                raise http.client.IncompleteRead(data, response.length)
        except _LOST as error:
            connection.close()
            raise OutcomeUnknown(f"the answer of {self.url} was lost: {_words(error)}") from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return Answer(response.status, dict(response.getheaders()), data)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        if connection.sock is None:
            try:
                connection.connect()
            except ssl.SSLCertVerificationError as error:
                raise ConfigError(f"{self.url}: its certificate is not trusted ({error.verify_message})") from error
            except OSError as error:
                raise _NotSent(
                    f"no gateway answers at {self.url}: {_words(error)}; start `headwater up`, or name the URL of a "
                    "gateway that runs"
                ) from error
            self._expected = True
        try:
            connection.request(method, target, body, {**self._headers, **headers})
            return connection.getresponse()
        except _LOST as error:
            raise OutcomeUnknown(f"the answer of {self.url} was lost: {_words(error)}") from error

    def _take(self) -> http.client.HTTPConnection:
        """A connection that was kept and that the gateway has not closed meanwhile, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.sock is not None and not readable(connection.sock, 0):
                return connection
            connection.close()
        return self._connect()

    def _connect(self, silence: float = ANSWER_SECONDS) -> http.client.HTTPConnection:
        host, port = self._address
        assert host is not None
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=silence, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=silence)


# --- errors --------------------------------------------------------------------------------------------

_KINDS: Mapping[str, type[HeadwaterError]] = {
    "already-exists": Exists,
    "not-found": NotFound,
    "no-record": NoRecord,
    "too-large": TooLarge,
    "mirrored": Mirrored,
    "keys-full": StoreFull,
    "store-full": StoreFull,
    "outcome-unknown": OutcomeUnknown,
    "damaged": Damaged,
    "statement-refused": StatementRefused,
    "query-failed": QueryFailed,
    "query-limit": QueryLimit,
    "query-cancelled": QueryCancelled,
    "no-engine": NoEngine,
}
_STATUSES: Mapping[int, type[HeadwaterError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: NotReady,
    413: TooLarge,
    429: Overloaded,
    502: OutcomeUnknown,
    503: NotReady,
    504: OutcomeUnknown,
    507: StoreFull,
}


def problem(status: int, data: bytes) -> HeadwaterError:
    """The error that a problem document stands for."""
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        told = {}
    kind = str(told.get("type", "")).rpartition("/")[2]
    words = str(told.get("detail") or told.get("title") or f"the gateway answered with status {status}")
    if status == 409 and kind not in _KINDS:
        present = {int(line["partition"]): int(line["present"]) for line in told.get("partitions") or ()}
        version = told.get("version")
        return Conflict(words, present, int(version["present"]) if isinstance(version, dict) else None)
    found = _KINDS.get(kind) or _STATUSES.get(status) or (BadInput if status < 500 else HeadwaterError)
    return found(words)


def _reset(connection: http.client.HTTPConnection) -> None:
    """Close a connection so that the gateway sees at once that nobody waits for the answer.

    One that is closed in the usual way looks as if its client only sent no more.
    """
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read the issuers in {ca}: {_words(error)}") from error
