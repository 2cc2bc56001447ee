"""Nothing listens beyond loopback without authentication unless it was asked to."""

from __future__ import annotations

import msgspec
import pytest

from headwater.app.exposure import check_exposure
from headwater.errors import ConfigError
from headwater.settings.settings import Gateway, HttpSecurity, ListenerSecurity, Security, Settings
from tests.support.promise import promise

PROMISES = ("S3",)

SAFE = [
    ("127.0.0.1:9092", "127.0.0.1:8080", {}),
    ("localhost:9092,B=[::1]:9093,C=127.8.8.8:1", "localhost:1", {}),
    ("SASL_PLAINTEXT=0.0.0.0:9092", "127.0.0.1:8080", {}),
    ("SASL_SSL=10.0.0.1:9092", "127.0.0.1:8080", {}),
    ("X=0.0.0.0:9092", "127.0.0.1:8080", {"X": ListenerSecurity(protocol="SASL_SSL")}),
    ("X=0.0.0.0:9092", "127.0.0.1:8080", {"x": ListenerSecurity(protocol="SSL", client_auth="required")}),
]
OPEN = [
    ("0.0.0.0:9092", "127.0.0.1:8080", {}),
    ("A=127.0.0.1:9092,B=192.168.1.1:9092", "127.0.0.1:8080", {}),
    ("kafka.example.org:9092", "127.0.0.1:8080", {}),
    ("[::]:9092", "127.0.0.1:8080", {}),
    ("SSL=0.0.0.0:9092", "127.0.0.1:8080", {}),
    ("SSL=0.0.0.0:9092", "127.0.0.1:8080", {"SSL": ListenerSecurity(client_auth="requested")}),
    ("SASL_SSL=0.0.0.0:9092", "127.0.0.1:8080", {"SASL_SSL": ListenerSecurity(protocol="PLAINTEXT")}),
    ("127.0.0.1:9092", "0.0.0.0:8080", {}),
    ("SASL_SSL=10.0.0.1:9092", "10.0.0.1:8080", {}),
]


KNOWN = [
    HttpSecurity(authentication="basic"),
    HttpSecurity(authentication="bearer"),
    HttpSecurity(authentication="any"),
    HttpSecurity(certificate="a", key="b", client_auth="required", client_ca="c"),
]
UNKNOWN = [HttpSecurity(certificate="a", key="b"), HttpSecurity(client_auth="requested", client_ca="c")]


@promise("S3")
@pytest.mark.parametrize("own", KNOWN)
def test_pages_that_know_who_asks(own: HttpSecurity) -> None:
    """They may be anywhere."""
    settings = Settings(http="0.0.0.0:8080", security=Security(http=own))
    assert check_exposure(settings) is None  # type: ignore[func-returns-value]


@promise("S3")
@pytest.mark.parametrize("own", UNKNOWN)
def test_pages_that_do_not(own: HttpSecurity) -> None:
    """TLS alone tells nothing about the client."""
    with pytest.raises(ConfigError, match=r"security\.http\.authentication"):
        check_exposure(Settings(http="0.0.0.0:8080", security=Security(http=own)))


def made(kafka: str, http: str, listeners: dict[str, ListenerSecurity]) -> Settings:
    return Settings(kafka=kafka, http=http, security=Security(listeners=listeners))


@promise("S3")
@pytest.mark.parametrize(("kafka", "http", "listeners"), SAFE)
def test_safe(kafka: str, http: str, listeners: dict[str, ListenerSecurity]) -> None:
    """Loopback, or authentication."""
    assert check_exposure(made(kafka, http, listeners)) is None  # type: ignore[func-returns-value]


@promise("S3")
@pytest.mark.parametrize(("kafka", "http", "listeners"), OPEN)
def test_open(kafka: str, http: str, listeners: dict[str, ListenerSecurity]) -> None:
    """Refused with what to do about it; allowed where that is asked for."""
    settings = made(kafka, http, listeners)
    with pytest.raises(ConfigError, match="--insecure"):
        check_exposure(settings)
    trusted = msgspec.structs.replace(settings.security, insecure=True)
    assert check_exposure(msgspec.structs.replace(settings, security=trusted)) is None  # type: ignore[func-returns-value]


@promise("S2")
def test_rules_without_a_way_to_log_in(caplog: pytest.LogCaptureFixture) -> None:
    """Every caller is the same user then. The log says so when the process starts."""
    for security, warnings in (
        (Security(acls=True), 1),
        (Security(acls=True, http=HttpSecurity(authentication="basic")), 0),
        (Security(acls=True, http=HttpSecurity(client_auth="required")), 0),
        (Security(), 0),
    ):
        caplog.clear()
        check_exposure(Settings(security=security))
        assert len(caplog.records) == warnings
        assert all("User:ANONYMOUS" in record.message for record in caplog.records)


@promise("S3")
@pytest.mark.parametrize(
    ("own", "what"),
    [(Gateway(http="10.0.0.1:8081"), "gateway"), (Gateway(flight="10.0.0.1:8082"), "Flight SQL server")],
)
def test_a_gateway_beyond_loopback(own: Gateway, what: str) -> None:
    """It wants an authentication, like the pages; a process without one does not care."""
    settings = Settings(gateway=own)
    check_exposure(settings)
    with pytest.raises(ConfigError, match=rf"{what} on 10\.0\.0\.1 .*--insecure"):
        check_exposure(settings, gateway=True)
    for security in (
        Security(insecure=True),
        Security(http=HttpSecurity(authentication="basic")),
        Security(http=HttpSecurity(client_auth="required")),
    ):
        check_exposure(msgspec.structs.replace(settings, security=security), gateway=True)
