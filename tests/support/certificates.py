"""Certificates and tokens for tests, created on demand."""

from __future__ import annotations

import datetime
import ipaddress
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

_NAMES = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
          "C": NameOID.COUNTRY_NAME, "E": NameOID.EMAIL_ADDRESS}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files and as objects."""

    certificate: Path
    key: Path
    signer: ec.EllipticCurvePrivateKey
    document: x509.Certificate


def issue(directory: Path, name: str, issuer: Pair | None = None, subject: str | None = None) -> Pair:
    """A certificate for a server on loopback and for clients. Without an issuer it is a certificate authority."""
    signer = ec.generate_private_key(ec.SECP256R1())
    pairs = [part.split("=", 1) for part in (subject or f"CN={name}").split(",")]
    own = x509.Name([x509.NameAttribute(_NAMES[kind], value) for kind, value in pairs])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    document = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer.document.subject if issuer else own)
        .public_key(signer.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(issuer.signer if issuer else signer, hashes.SHA256())
    )
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key", signer, document)
    pair.certificate.write_bytes(document.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(
        signer.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return pair


# --- tokens ----------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return _text(value.to_bytes(size or (value.bit_length() + 7) // 8))


class Signer:
    """Signs tokens with a key of its own."""

    def __init__(self, name: str, algorithm: str, bits: int = 2048) -> None:
        self.name = name
        self.algorithm = algorithm
        self._key: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if algorithm == "ES256"
            else rsa.generate_private_key(public_exponent=65537, key_size=bits)
        )

    def public(self) -> dict[str, Any]:
        """The key as a row of a JWKS document."""
        numbers = self._key.public_key().public_numbers()
        if self.algorithm == "ES256":
            shape = {"kty": "EC", "crv": "P-256", "x": _number(numbers.x, 32), "y": _number(numbers.y, 32)}
        else:
            shape = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        return {"kid": self.name, "use": "sig", "alg": self.algorithm, **shape}

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        """A signed token."""
        head = _text(json.dumps({"alg": self.algorithm, "kid": self.name, **header}).encode())
        body = _text(json.dumps(claims).encode())
        data = f"{head}.{body}".encode()
        if self.algorithm == "ES256":
            first, second = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
            signature = first.to_bytes(32) + second.to_bytes(32)
        else:
            signature = self._key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return f"{head}.{body}.{_text(signature)}"


def key_document(*signers: Signer) -> str:
    """A JWKS document."""
    return json.dumps({"keys": [signer.public() for signer in signers]})
