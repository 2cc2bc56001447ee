"""How a client connects: TLS and log-in."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.clock import Chance, SystemChance
from headwater.errors import ClientError, ConfigError
from headwater.settings.settings import MECHANISMS, PROTOCOLS
from headwater.wire import scram

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """TLS and log-in of a client. The default is an unencrypted connection without a log-in."""

    tls: bool = False
    ca: str = ""
    """File with the issuers of the brokers' certificates; by default those that the machine trusts."""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    mechanism: str = ""
    """One of `MECHANISMS`; empty for no log-in."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.mechanism and self.mechanism not in MECHANISMS:
            raise ConfigError(f"the mechanism {self.mechanism!r} must be one of {', '.join(MECHANISMS)}")
        if self.mechanism == "OAUTHBEARER" and not self.token:
            raise ConfigError("OAUTHBEARER needs a token")
        if self.mechanism not in ("", "OAUTHBEARER") and not (self.user and self.password):
            raise ConfigError(f"{self.mechanism} needs a user and a password")
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("a client certificate needs its key, and a key its certificate")

    def context(self) -> ssl.SSLContext | None:
        """The TLS context of connections."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key, self.key_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ConfigError(f"cannot use the certificates for TLS: {reason}") from error
        return context


class Conversation:
    """The client's messages of one log-in."""

    def __init__(self, security: ClientSecurity, chance: Chance | None = None) -> None:
        self._security = security
        self._scram: scram.ClientSide | None = None
        number = scram.MECHANISMS.get(security.mechanism)
        if number is not None:
            nonce = (chance or SystemChance()).uuid().hex
            self._scram = scram.ClientSide(number, security.user, security.password, nonce)
        self._steps = 0

    def __repr__(self) -> str:
        return f"<Conversation by {self._security.mechanism}, step {self._steps}>"

    def first(self) -> bytes:
        """The first message of the client."""
        security = self._security
        if self._scram is not None:
            return self._scram.first()
        if security.mechanism == "PLAIN":
            return f"\0{security.user}\0{security.password}".encode()
        return f"n,,\x01auth=Bearer {security.token}\x01\x01".encode()

    def answer(self, message: bytes) -> bytes | None:
        """The next message of the client; None after the last one."""
        self._steps += 1
        if self._scram is None:
            # A broker that refuses a token sends the reason, and expects a message before it refuses.
            return b"\x01" if message and self._security.mechanism == "OAUTHBEARER" and self._steps == 1 else None
        try:
            if self._steps == 1:
                return self._scram.final(message)
            self._scram.check(message)
        except scram.ScramFailed as error:
            raise ClientError(f"the broker's answer to the log-in is wrong: {error}") from error
        return None


# --- files ---------------------------------------------------------------------------------------------

_KNOWN = {
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location",
    "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "sasl.oauthbearer.token",
}  # fmt: skip


def read_secret(path: str) -> str:
    """A password or token from a file, without a line break at its end."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    if not text or len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is empty or too large")
    return text


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file of `name=value` lines, with librdkafka's names."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_secret(path).splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or name.strip() not in _KNOWN:
            raise ConfigError(f"{path}, line {number}: not one of {', '.join(sorted(_KNOWN))}")
        found[name.strip()] = value.strip()
    return found


def from_properties(found: Mapping[str, str]) -> ClientSecurity:
    """Properties with librdkafka's names as settings."""
    protocol = found.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol {protocol!r} must be one of {', '.join(PROTOCOLS)}")
    mechanism = found.get("sasl.mechanism") or found.get("sasl.mechanisms") or "SCRAM-SHA-512"
    return ClientSecurity(
        tls=protocol.endswith("SSL"),
        ca=found.get("ssl.ca.location", ""),
        certificate=found.get("ssl.certificate.location", ""),
        key=found.get("ssl.key.location", ""),
        key_password=found.get("ssl.key.password", ""),
        mechanism=mechanism.upper() if protocol.startswith("SASL") else "",
        user=found.get("sasl.username", ""),
        password=found.get("sasl.password", ""),
        token=found.get("sasl.oauthbearer.token", ""),
    )
