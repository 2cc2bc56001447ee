"""TLS on the server's side: certificates that are read again when they change, and who a client's certificate names."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.config import Tls
from headwater.errors import ConfigError

log = logging.getLogger("headwater.tls")
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
    """One listener's certificates. Connections that are open go on with those that they began with."""

    def __init__(self, name: str, own: Tls) -> None:
        check_rules(own.principal_rules)
        self._name = name
        self._own = own
        self._stamps = self._look()
        self._current = self._load()
        self.context = self._load()
        """What the listener is opened with. Every handshake is handed on to the newest certificates."""
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
        """What tells whether files have changed. A link that is turned to another file changes the inode."""
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
                # A resumed session would not show its certificate again, though its issuer may be trusted no longer.
                context.num_tickets = 0
                context.options |= ssl.OP_NO_TICKET
        except (OSError, ValueError) as error:
            reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
            raise ConfigError(f"listener {self._name}: certificates cannot be used: {reason}") from error
        return context

    def reload(self) -> bool:
        """Read the files again if they have changed. Those that do not fit together change nothing."""
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
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(seconds)
            self.reload()


def peer_context(own: Tls) -> ssl.SSLContext:
    """How a broker connects to another one's listener: with the same certificate, believing the same issuers."""
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
    """Rules are `DEFAULT` or `RULE:pattern/replacement/`, with `L` or `U` behind for lower or upper case."""
    for rule in rules:
        found = _RULE.fullmatch(rule)
        try:
            if rule != "DEFAULT" and found is None:
                raise ValueError
            if found is not None:
                re.compile(found[1])
        except (ValueError, re.error):
            raise ConfigError(f"settings: the principal rule {rule!r} cannot be read") from None


def principal_of(certificate: dict[str, Any], rules: Sequence[str] = ()) -> str:
    """Who a client's certificate names: by the first rule whose pattern fits the whole subject, else the subject."""
    subject = subject_name(certificate)
    for rule in rules:
        found = _RULE.fullmatch(rule)
        if found is None:
            break
        matched = re.fullmatch(found[1], subject)
        if matched:
            name = _replaced(found[2], [matched[0], *matched.groups("")])
            return "User:" + {"L": name.lower(), "U": name.upper()}.get(found[3], name)
    return f"User:{subject}"


def _replaced(replacement: str, groups: Sequence[str]) -> str:
    """A rule's replacement with `$1` and so on filled in; a group that the pattern does not have is empty."""

    def group(found: re.Match[str]) -> str:
        return groups[int(found[1])] if int(found[1]) < len(groups) else ""

    return re.sub(r"\$(\d)", group, replacement.replace("\\/", "/"))
