"""The URL of a ledger in Oxia."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from headwater.errors import ConfigError

FORM = "oxia://host:port[,host:port…]/namespace?prefix=name[&tls=true&ca=file&cert=file&key=file]"
_OPTIONS = {"prefix", "tls", "ca", "cert", "key"}


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of Oxia's servers, TLS files, the namespace and the prefix of the ledger's keys."""

    addresses: tuple[str, ...]
    namespace: str = "default"
    prefix: str = "headwater"
    tls: bool = False
    ca: str = ""
    """A file with the issuers of servers' certificates. If empty, the issuers that the machine trusts."""
    certificate: str = ""
    key: str = ""


def parse_url(url: str) -> Servers:
    """Parse a URL, and check all that can be checked without a server."""
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    namespace = unquote(parts.path.strip("/")) or "default"
    prefix = options.get("prefix", "headwater")
    addresses = tuple(parts.netloc.split(","))
    if not all(_is_address(address) for address in addresses) or "/" in namespace or parts.fragment:
        raise ConfigError(f"{url!r} is not of the form {FORM}")
    if not prefix or prefix.startswith(("/", "__oxia")):
        raise ConfigError(f"{prefix!r} in {url!r} cannot be a prefix of keys in Oxia")
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ConfigError(f"{url!r} has the unknown option {unknown[0]!r}; use {FORM}")
    tls = options.get("tls", "false")
    files = {name: options.get(name, "") for name in ("ca", "cert", "key")}
    if tls not in ("true", "false") or (tls == "false" and any(files.values())):
        raise ConfigError(f"{url!r}: tls is true or false, and certificates need tls=true")
    if bool(files["cert"]) != bool(files["key"]):
        raise ConfigError(f"{url!r}: cert and key must be given together")
    for file in filter(None, files.values()):
        if not Path(file).is_file():
            raise ConfigError(f"{url!r} names the file {file!r}, which does not exist")
    return Servers(addresses, namespace, prefix, tls == "true", files["ca"], files["cert"], files["key"])


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and "@" not in text
