"""A connection by references: secrets come from files and the environment, and are never part of the description."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.references import MAX_VALUE, NAMES, check_references, read_references
from headwater.client.security import ClientSecurity
from headwater.errors import ConfigError

SECRET = "correct horse"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "scram-sha-256", "sasl.username": "ann"}


def test_nothing_given_is_a_plain_connection() -> None:
    check_references({})
    assert read_references({}, {}) == ClientSecurity()


def test_a_password_of_a_file_is_read_at_every_call(tmp_path: Path) -> None:
    file = tmp_path / "password"
    given = {**LOGIN, "sasl.password.file": str(file), "ssl.ca.location": "/ca.pem"}
    check_references(given)  # the file need not be there: it is on the machine of the process that connects
    with pytest.raises(ConfigError, match="cannot read"):
        read_references(given, {})
    for secret in (SECRET, "another"):
        file.write_text(f"{secret}\n")
        found = read_references(given, {})
        assert (found.user, found.password, found.mechanism) == ("ann", secret, "SCRAM-SHA-256")
        assert found.tls and found.ca == "/ca.pem"


def test_secrets_of_the_environment() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.env": "T"}
    assert read_references(given, {"T": "token"}).token == "token"
    with pytest.raises(ConfigError, match="the variable T of the environment is not set"):
        read_references(given, {"U": "token"})
    with pytest.raises(ConfigError, match="is not set"):
        read_references(given, {"T": ""})


def test_a_client_certificate_whose_key_has_a_password() -> None:
    given = {"security.protocol": "SSL", "ssl.certificate.location": "c", "ssl.key.location": "k"}
    found = read_references({**given, "ssl.key.password.env": "P"}, {"P": SECRET})
    assert (found.certificate, found.key, found.key_password) == ("c", "k", SECRET)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**LOGIN, "sasl.password": SECRET}, "sasl.password.file or sasl.password.env"),
        ({"ssl.key.password": SECRET}, "is a secret"),
        ({"sasl.kerberos.service.name": SECRET}, "is none of"),
        ({**LOGIN}, "needs a user and a password"),
        ({**LOGIN, "sasl.password.file": "f", "sasl.password.env": "E"}, "not from both"),
        ({**LOGIN, "sasl.password.env": SECRET}, "does not name a variable"),
        ({**LOGIN, "sasl.password.file": ""}, "1 to"),
        ({"ssl.ca.location": "x" * (MAX_VALUE + 1)}, "1 to"),
        ({"security.protocol": "TLS"}, "must be one of"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "c"}, "needs its key"),
    ],
)
def test_what_cannot_be_stored_is_refused_without_its_secrets(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        check_references(given)
    assert SECRET not in str(refusal.value)
    with pytest.raises(ConfigError, match=words):
        read_references(given, {"E": SECRET})


def test_no_name_of_a_description_is_that_of_a_secret() -> None:
    assert not {"sasl.password", "ssl.key.password", "sasl.oauthbearer.token"} & set(NAMES)
