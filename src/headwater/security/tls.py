"""TLS of servers: certificates that are read again when they change, and the principal of a client's certificate."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.background import Duty, OnDeath
from headwater.coordination.common import GroupError
from headwater.coordination.regex import compiled
from headwater.errors import ConfigError
from headwater.settings.settings import Tls

log = logging.getLogger("headwater.tls")
CERTIFICATES = Duty("certificates", OnDeath.RESTART, "reads a listener's certificates again when they change")
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL = "1.2.840.113549.1.9.1"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")


class Certificates:
    """The certificates of one listener. Open connections keep the certificates that they started with."""

    def __init__(self, name: str, own: Tls) -> None:
        check_rules(own.principal_rules)
        self._name = name
        self._own = own
        self._stamps = self._look()
        self._current = self._load()
        self.context = self._load()
        """The context of the listener. Every handshake switches to the newest certificates."""
        self.context.sni_callback = self._hand_on
        self._failed: object = None

    def __repr__(self) -> str:
        return f"<Certificates of listener {self._name}>"

    def _hand_on(self, handshake: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._current

    def _files(self) -> list[str]:
        own = self._own
        return [file for file in (own.certificate, own.key, own.key_password_file, own.client_ca) if file]

    def _look(self) -> list[tuple[int, int, int]]:
        """The times, sizes and inodes of the files. A link that is moved to another file changes the inode."""
        stamps = []
        for file in self._files():
            try:
                found = os.stat(file)
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return stamps

    def _load(self) -> ssl.SSLContext:
        own = self._own
        try:
            password = Path(own.key_password_file).read_text().strip() if own.key_password_file else None
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(own.certificate, own.key, password or "")
            if own.client_ca:
                context.load_verify_locations(own.client_ca)
            context.verify_mode = _VERIFY[own.client_auth]
            if own.client_auth != "none":
                # A resumed session would not show its certificate again, though the issuer may no longer be trusted.
                context.num_tickets = 0
                context.options |= ssl.OP_NO_TICKET
        except (OSError, ValueError) as error:
            reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
            raise ConfigError(f"listener {self._name}: certificates cannot be used: {reason}") from error
        return context

    def reload(self) -> bool:
        """Read the files again if they have changed. If they cannot be used, the old certificates stay."""
        stamps = self._look()
        if stamps in (self._stamps, self._failed):
            return False
        try:
            self._current = self._load()
        except ConfigError as error:
            self._failed = stamps
            log.error("keeping the old certificates", extra={"listener": self._name, "reason": str(error)})
            return False
        self._stamps, self._failed = stamps, None
        log.info("new certificates", extra={"listener": self._name})
        return True

    async def watch(self, seconds: float) -> None:
        """Check the files at intervals, for ever."""
        while True:
            await asyncio.sleep(seconds)
            self.reload()


def peer_context(own: Tls) -> ssl.SSLContext:
    """The context for connections to other brokers' listeners: the same certificate and the same trusted issuers."""
    try:
        password = Path(own.key_password_file).read_text().strip() if own.key_password_file else None
        context = ssl.create_default_context(cafile=own.client_ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(own.certificate, own.key, password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificates for other brokers cannot be used: {type(error).__name__}") from error
    return context


def subject_name(certificate: dict[str, Any]) -> str:
    """A certificate's subject as Java writes it (RFC 2253): the last part first, `CN=…,OU=…,O=…`."""
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        parts.append("+".join(_attribute(name, value) for name, value in relative))
    return ",".join(parts)


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":
        data = value.encode("ascii", "replace")
        return f"{_EMAIL}=#16{len(data):02x}{data.hex()}" if len(data) < 128 else f"{_EMAIL}={value}"
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"


def check_rules(rules: Sequence[str]) -> None:
    """Check rules: `DEFAULT` or `RULE:pattern/replacement/`, with `L` or `U` at the end for lower or upper case.

    The pattern is in RE2's syntax: a subject is matched in linear time, whatever a client put into its certificate.
    """
    for rule in rules:
        found = _RULE.fullmatch(rule)
        try:
            if rule != "DEFAULT" and found is None:
                raise ValueError
            if found is not None:
                compiled(found[1], groups=True)
        except (ValueError, GroupError):
            raise ConfigError(f"settings: the principal rule {rule!r} is not valid") from None


def principal_of(certificate: dict[str, Any], rules: Sequence[str] = ()) -> str:
    """The principal of a client's certificate: by the first rule whose pattern matches the whole subject, else the
    subject."""
    subject = subject_name(certificate)
    for rule in rules:
        found = _RULE.fullmatch(rule)
        if found is None:
            break
        matched = compiled(found[1], groups=True).fullmatch(subject)
        if matched:
            name = _replaced(found[2], [matched.group(), *matched.groups("")])
            return "User:" + {"L": name.lower(), "U": name.upper()}.get(found[3], name)
    return f"User:{subject}"


def _replaced(replacement: str, groups: Sequence[str]) -> str:
    """A rule's replacement with the groups for `$1` and so on. A group that the pattern does not have is empty."""

    def group(found: re.Match[str]) -> str:
        return groups[int(found[1])] if int(found[1]) < len(groups) else ""

    return re.sub(r"\$(\d)", group, replacement.replace("\\/", "/"))
