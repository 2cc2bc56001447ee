"""PEM for gRPC: subjects as Python's `ssl` gives them, and keys with a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from headwater.errors import BadInput
from headwater.security.pem import subject_of, without_password
from headwater.security.tls import principal_of
from tests.support.certificates import issue


def test_subjects(tmp_path: Path) -> None:
    pair = issue(tmp_path, "alice", subject="C=DE,O=Works and more,OU=Mill,CN=alice,E=a@b.example")
    subject = subject_of(pair.certificate.read_bytes())
    assert subject["subject"][3] == (("commonName", "alice"),)
    email = "1.2.840.113549.1.9.1=#160b614062" + b".example"[:7].hex()
    assert principal_of(subject).startswith(f"User:{email[:30]}") and principal_of(subject).endswith("C=DE")
    with pytest.raises(BadInput):
        subject_of(b"nothing")


def test_keys_with_a_password(tmp_path: Path) -> None:
    pair = issue(tmp_path, "alice")
    locked = pair.signer.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"open")
    )
    assert b"ENCRYPTED" in locked and without_password(locked, "open") == pair.key.read_bytes()
    with pytest.raises(ValueError, match="assword"):
        without_password(locked, "wrong")
