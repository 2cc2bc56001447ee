"""The parts of a broker process that share WAL objects with other brokers of its zone."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.background import Background
from headwater.broker.peers.client import PeerConnections
from headwater.broker.peers.server import Look, PeerServer
from headwater.clock import Chance
from headwater.errors import ConfigError
from headwater.security.tls import peer_context
from headwater.settings.settings import INTERNAL, MIB, Settings, parse_address
from headwater.state.commands.cluster import Listener

MIN_SECRET = 16


def connections(settings: Settings, chance: Chance) -> PeerConnections | None:
    """The connections to other brokers; None if this broker has no internal listener."""
    if not settings.internal:
        return None
    own = settings.security.listener(INTERNAL)
    limit = settings.limits.frame_bytes + MIB
    tls = (lambda: peer_context(own)) if own.protocol == "SSL" else None
    return PeerConnections(settings.peers, read_secret(settings), chance, max_bytes=limit, tls=tls)


class Internal:
    """The internal listener of a broker process, if it has one."""

    def __init__(self, settings: Settings, chance: Chance, look: Look, background: Background) -> None:
        self._settings = settings
        self.server: PeerServer | None = None
        if settings.internal:
            self.server = PeerServer(settings.peers, read_secret(settings), chance, look, background)

    async def listen(self, advertised: tuple[str, int] | None) -> list[Listener]:
        """Open the listener; returns the address that other brokers use."""
        if self.server is None:
            return []
        host, port = parse_address(self._settings.internal)
        security = self._settings.security
        try:
            bound = await self.server.listen(host, port, security.listener(INTERNAL), security.reload_ms / 1000)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        shown_host, shown_port = advertised or (host, bound)
        if shown_host in ("0.0.0.0", "::"):
            raise ConfigError(f"the internal listener needs an address in `advertise`, as {INTERNAL}=HOST:PORT")
        return [Listener(INTERNAL, shown_host, shown_port or bound)]

    async def close(self) -> None:
        """Close the listener and all connections."""
        if self.server is not None:
            await self.server.close()


def read_secret(settings: Settings) -> bytes:
    """The secret of the brokers of a cluster. It may be unset (empty) only on loopback or with mutual TLS."""
    if not settings.internal_secret_file:
        return b""
    try:
        secret = Path(settings.internal_secret_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read internal_secret_file: {error.strerror or error}") from error
    if len(secret) < MIN_SECRET:
        raise ConfigError(f"the secret in internal_secret_file has less than {MIN_SECRET} characters")
    return secret


def make_secret(directory: Path, chance: Chance) -> str:
    """Create the file with the secret of this machine's brokers, unless it exists; returns its name."""
    file, draft = directory / "internal.secret", directory / "internal.secret.new"
    try:
        if not file.exists():
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(f"{chance.uuid().hex}{chance.uuid().hex}\n")
            draft.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from error
    return str(file)
