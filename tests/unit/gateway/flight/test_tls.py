"""The files of certificates: keys with a password, files that change, files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from headwater.errors import ConfigError
from headwater.gateway.flight.tls import PemFiles
from headwater.settings.settings import HttpSecurity
from tests.support.certificates import issue


def test_files(tmp_path: Path) -> None:
    server, word = issue(tmp_path, "server"), tmp_path / "word"
    own = HttpSecurity(certificate=str(server.certificate), key=str(server.key))
    files = PemFiles(own)
    assert files.current.key == server.key.read_bytes() and files.current.client_ca is None and not files.required
    assert files.changed() is None
    other = issue(tmp_path, "other")
    server.certificate.write_bytes(other.certificate.read_bytes())
    server.key.write_bytes(other.key.read_bytes())
    found = files.changed()
    assert found is not None and found.key == other.key.read_bytes() and files.changed() is None
    server.certificate.write_text("nothing")
    assert files.changed() is None and files.current is found

    word.write_text("open\n")
    locked = other.signer.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"open")
    )
    server.key.write_bytes(locked)
    server.certificate.write_bytes(other.certificate.read_bytes())
    assert PemFiles(msgspec.structs.replace(own, key_password_file=str(word))).current.key == other.key.read_bytes()
    word.write_text("wrong")
    for broken in ({"key_password_file": str(word)}, {"certificate": str(tmp_path / "missing")}):
        with pytest.raises(ConfigError, match="certificates cannot be used"):
            PemFiles(msgspec.structs.replace(own, **broken))
