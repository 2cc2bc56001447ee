"""A connection by references: secrets come from files and the environment, and are never part of the description."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.references import MAX_VALUE, NAMES, Allowed, check_references, read_references
from headwater.client.security import ClientSecurity
from headwater.errors import ConfigError, NotAllowed

SECRET = "correct horse"
NOTHING = Allowed()
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "scram-sha-256", "sasl.username": "ann"}


def test_nothing_given_is_a_plain_connection() -> None:
    check_references({})
    assert read_references({}, {}, NOTHING) == ClientSecurity()


def test_a_password_of_a_file_is_read_at_every_call(tmp_path: Path) -> None:
    file = tmp_path / "password"
    authority = str(tmp_path / "ca.pem")
    given = {**LOGIN, "sasl.password.file": str(file), "ssl.ca.location": authority}
    allowed = Allowed((str(tmp_path),))
    check_references(given)  # the file need not be there: it is on the machine of the process that connects
    with pytest.raises(ConfigError, match="cannot read"):
        read_references(given, {}, allowed)
    for secret in (SECRET, "another"):
        file.write_text(f"{secret}\n")
        found = read_references(given, {}, allowed)
        assert (found.user, found.password, found.mechanism) == ("ann", secret, "SCRAM-SHA-256")
        assert found.tls and found.ca == authority


def test_secrets_of_the_environment() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.env": "T"}
    allowed = Allowed(variables=("T",))
    assert read_references(given, {"T": "token"}, allowed).token == "token"
    with pytest.raises(ConfigError, match="the variable T of the environment is not set"):
        read_references(given, {"U": "token"}, allowed)
    with pytest.raises(ConfigError, match="is not set"):
        read_references(given, {"T": ""}, allowed)


def test_a_client_certificate_whose_key_has_a_password() -> None:
    given = {"security.protocol": "SSL", "ssl.certificate.location": "/c", "ssl.key.location": "/k"}
    allowed = Allowed(("/c", "/k"), ("P",))
    found = read_references({**given, "ssl.key.password.env": "P"}, {"P": SECRET}, allowed)
    assert (found.certificate, found.key, found.key_password) == ("/c", "/k", SECRET)


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
        read_references(given, {"E": SECRET}, Allowed(("/",), ("E",)))


@pytest.mark.parametrize("name", ["sasl.password.file", "ssl.ca.location", "ssl.certificate.location"])
@pytest.mark.parametrize(
    "path", ["outside", "listed/../outside", "listed/out", "listed/away/outside", "listed-too/secret"]
)
def test_a_file_that_is_not_listed_is_not_read(tmp_path: Path, name: str, path: str) -> None:
    """Outside, by a way back up, by a link to a file or to a directory, by a name that only begins alike."""
    for directory in ("listed", "listed-too"):
        (tmp_path / directory).mkdir()
    for file in ("outside", "listed-too/secret", "one"):
        (tmp_path / file).write_text(SECRET)
    (tmp_path / "listed" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "listed" / "away").symlink_to(tmp_path)
    (tmp_path / "listed" / "secret").write_text("listed")
    allowed = Allowed((str(tmp_path / "listed"), str(tmp_path / "one")))
    given = {
        **LOGIN,
        "sasl.password.file": str(tmp_path / "listed" / "secret"),
        "ssl.key.location": str(tmp_path / "one"),
    }
    given["ssl.certificate.location"] = str(tmp_path / "one")
    assert read_references(given, {}, allowed).password == "listed"
    with pytest.raises(match=f"{name} names .* in none of the directories of links.secret_directories"):
        read_references({**given, name: str(tmp_path / path)}, {}, allowed)


@pytest.mark.parametrize("path", ["secret", "../secret", "/p/sec\0ret", "/p\0"])
def test_a_path_that_is_relative_or_has_a_zero_is_never_listed(path: str) -> None:
    with pytest.raises(NotAllowed):
        Allowed(("/p", "/")).resolved({"sasl.password.file": path})


def test_a_link_within_a_listed_directory_is_followed_and_a_listed_link_too(tmp_path: Path) -> None:
    """As secrets are mounted into containers."""
    (tmp_path / "real" / "..2026").mkdir(parents=True)
    (tmp_path / "real" / "..2026" / "password").write_text(SECRET)
    (tmp_path / "real" / "password").symlink_to("..2026/password")
    (tmp_path / "secrets").symlink_to(tmp_path / "real")
    given = {**LOGIN, "sasl.password.file": str(tmp_path / "secrets" / "password")}
    assert read_references(given, {}, Allowed((str(tmp_path / "secrets"),))).password == SECRET


def test_a_variable_that_is_not_listed_is_not_read() -> None:
    given = {**LOGIN, "sasl.password.env": "AWS_SECRET_ACCESS_KEY"}
    with pytest.raises(match=r"AWS_SECRET_ACCESS_KEY, .* links\.secret_variables"):
        read_references(given, {"AWS_SECRET_ACCESS_KEY": SECRET}, Allowed(("/",), ("OTHER",)))


def test_no_name_of_a_description_is_that_of_a_secret() -> None:
    assert not {"sasl.password", "ssl.key.password", "sasl.oauthbearer.token"} & set(NAMES)
