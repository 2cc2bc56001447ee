"""A link from another Headwater, over TLS and with a log-in by SCRAM. A password that changed is read anew. No secret
is in the ledger or the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.headwater import Headwater
from harness.patience import eventually
from harness.ports import free_ports
from harness.process import headwater
from tests.faults.linking import QUICK_LINKS, create_link, seen
from tests.support.certificates import issue
from tests.support.running import Running

PROMISES = ("N4",)

PASSWORD = "a secret of admin"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a secured Headwater with ten records, and the certificate of its authority."""
    directory = tmp_path_factory.mktemp("secured-source")
    issuer = issue(directory, "issuer")
    server = issue(directory, "server", issuer)
    settings = f"""
[security.listeners.SASL_SSL]
mechanisms = "SCRAM-SHA-512"
certificate = "{server.certificate}"
key = "{server.key}"
"""
    address = f"127.0.0.1:{free_ports(1)}"
    up = Running(directory / "up", settings=settings, kafka=f"SASL_SSL={address}")
    up.prepare()
    secret = directory / "password"
    secret.write_text(PASSWORD)
    up.cli("user", "add", "admin", "--config", str(up.config), "--new-password-file", str(secret))
    with up:
        client = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(issuer.certificate),
        }
        admin = AdminClient(client)
        for future in admin.create_topics([NewTopic("orders", 1, 1)], operation_timeout=30).values():
            future.result()
        producer = Producer(client)
        for number in range(10):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(60) == 0
        yield address, issuer.certificate


def test_another_headwater_over_tls_with_scram(source: tuple[str, Path], tmp_path: Path) -> None:
    address, authority = source
    secret = tmp_path / "password"
    secret.write_text("the password of before")
    listed = f'{QUICK_LINKS}secret_directories = ["{tmp_path}", "{authority}"]\n'
    with Headwater(tmp_path / "here", settings=listed) as server:
        security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password.file": str(secret),
            "ssl.ca.location": str(authority),
        }
        options = [word for name, value in security.items() for word in ("--security", f"{name}={value}")]
        create_link(server, "secured", address, "--topics", "orders", *options)
        eventually(lambda: server.metric("headwater_link_failures_total") > 0, "the log-in is refused", 60, 0.2)
        secret.write_text(PASSWORD)
        eventually(lambda: server.metric("headwater_link_offsets_total") == 10, "the records are copied", 60, 0.2)
        found = [(line[0], line[3]) for line in seen(server.bootstrap, "orders", 1)[0]]
        assert found == [(number, b"%d" % number) for number in range(10)]
        told = headwater("link", "describe", "secured", "--config", str(server.config), "--output", "json")
        assert str(secret) in told.stdout and PASSWORD not in told.stdout
        assert PASSWORD not in server.log.read_text()
    files = [path for path in (tmp_path / "here" / "data").glob("ledger.db*") if path.is_file()]
    ledger = b"".join(path.read_bytes() for path in files)
    assert str(secret).encode() in ledger and PASSWORD.encode() not in ledger
