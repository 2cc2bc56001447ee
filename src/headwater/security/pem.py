"""PEM for servers whose TLS is not Python's own: keys without their password, and the subject of a certificate."""

from __future__ import annotations

from typing import Any

from headwater.errors import BadInput

_NAMES = {
    "2.5.4.3": "commonName",
    "2.5.4.4": "surname",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "countryName",
    "2.5.4.7": "localityName",
    "2.5.4.8": "stateOrProvinceName",
    "2.5.4.9": "streetAddress",
    "2.5.4.10": "organizationName",
    "2.5.4.11": "organizationalUnitName",
    "2.5.4.12": "title",
    "2.5.4.42": "givenName",
    "0.9.2342.19200300.100.1.1": "userId",
    "0.9.2342.19200300.100.1.25": "domainComponent",
    "1.2.840.113549.1.9.1": "emailAddress",
}
"""The names that Python's `ssl` gives to the parts of a subject."""


def subject_of(certificate: bytes) -> dict[str, Any]:
    """The subject of a certificate, in the form of `ssl.SSLSocket.getpeercert`."""
    from cryptography import x509

    try:
        names = x509.load_pem_x509_certificate(certificate).subject.rdns
    except ValueError as error:
        raise BadInput("the certificate cannot be read") from error
    return {"subject": tuple(tuple((_name(part), str(part.value)) for part in relative) for relative in names)}


def _name(part: Any) -> str:
    number = str(part.oid.dotted_string)
    return _NAMES.get(number, number)


def without_password(key: bytes, password: str) -> bytes:
    """A private key that needs no password. Raises `ValueError` or `TypeError` if the password does not open it."""
    from cryptography.hazmat.primitives import serialization

    found = serialization.load_pem_private_key(key, password.encode())
    return found.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
