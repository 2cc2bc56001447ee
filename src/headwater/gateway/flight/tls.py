"""The certificates of the Flight SQL server, in the form that gRPC wants. They are read again when they change."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import BadInput, ConfigError
from headwater.security.pem import subject_of, without_password
from headwater.security.tls import check_rules, principal_of
from headwater.settings.settings import HttpSecurity

log = logging.getLogger("headwater.flight")


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates and keys as bytes."""

    key: bytes
    chain: bytes
    client_ca: bytes | None


class PemFiles:
    """The files of the settings. If they cannot be used later, the bytes of before are kept."""

    def __init__(self, own: HttpSecurity) -> None:
        check_rules(own.principal_rules)
        self._own = own
        self._stamps = self._look()
        self.current = self._load()

    def __repr__(self) -> str:
        return "<PemFiles of gateway.flight>"

    @property
    def required(self) -> bool:
        """Whether clients must show a certificate. gRPC cannot ask for one that clients may leave out."""
        return self._own.client_auth == "required"

    def changed(self) -> Pem | None:
        """The new bytes, if the files have changed since the last call; None if not."""
        stamps = self._look()
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        try:
            self.current = self._load()
        except ConfigError as error:
            log.error("keeping the old certificates", extra={"listener": "flight", "reason": str(error)})
            return None
        log.info("new certificates", extra={"listener": "flight"})
        return self.current

    def principal(self, certificate: bytes) -> str:
        """The principal of a client's certificate."""
        return principal_of(subject_of(certificate), self._own.principal_rules)

    def _look(self) -> list[tuple[int, int, int]]:
        own, stamps = self._own, []
        for file in (own.certificate, own.key, own.key_password_file, own.client_ca):
            if file:
                try:
                    found = os.stat(file)
                    stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
                except OSError:
                    stamps.append((0, 0, 0))
        return stamps

    def _load(self) -> Pem:
        own = self._own
        try:
            key = Path(own.key).read_bytes()
            if own.key_password_file:
                key = without_password(key, Path(own.key_password_file).read_text().strip())
            chain = Path(own.certificate).read_bytes()
            subject_of(chain)
            return Pem(key, chain, Path(own.client_ca).read_bytes() if self.required else None)
        except (OSError, ValueError, TypeError, BadInput) as error:
            raise ConfigError(f"listener flight: certificates cannot be used: {type(error).__name__}") from error
