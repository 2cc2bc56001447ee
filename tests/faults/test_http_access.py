"""The pages of a real `headwater up` with users, rules and TLS; its children are no back door."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
import warnings
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import UnauthorizedError

from harness.process import headwater
from tests.support.certificates import issue
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("S2", "S3")

USERS = {"admin": "admin secret", "alice": "wonder=land,"}


class Secured(Running):
    """Two brokers and a gateway, whose pages want TLS and a password."""

    def get(
        self, path: str, user: str = "", password: str | None = None, host: str = "", at: str = ""
    ) -> tuple[int, str]:
        """Status and body of a page, of the supervisor, of a server `at` an address, or of a process without TLS."""
        address = f"http://{host}" if host else f"https://{at or self.http}"
        request = urllib.request.Request(address + path)
        if user:
            text = f"{user}:{USERS[user] if password is None else password}"
            request.add_header("Authorization", "Basic " + b64encode(text.encode()).decode())
        trust = None if host else ssl.create_default_context(cafile=str(self.directory / "issuer.pem"))
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                assert (error.code == 401) == ("WWW-Authenticate" in error.headers)
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    own = issue(directory, "server", issue(directory, "issuer"))
    settings = f"""
[security]
acls = true
super_users = "User:admin"
[security.http]
authentication = "basic"
certificate = "{own.certificate}"
key = "{own.key}"
"""
    up = Secured(directory, brokers=2, gateway=True, settings=settings)
    up.prepare()
    for name, password in USERS.items():
        file = directory / f"{name}.password"
        file.write_text(password)
        up.cli("user", "add", name, "--config", str(up.config), "--new-password-file", str(file))
    with up:
        yield up


@promise("S2")
def test_pages(server: Secured) -> None:
    """What is open says no more than the status; the rest is for those who may describe the cluster."""
    assert server.get("/healthz") == (200, '{"status":"alive"}')
    assert server.get("/readyz") == (200, '{"status":"healthy"}')
    for path in ("/metrics", "/health"):
        assert server.get(path)[0] == 401
        assert server.get(path, "admin", "wrong")[0] == 401
        assert server.get(path, "alice")[0] == 403
    status, body = server.get("/metrics", "admin")
    assert status == 200 and 'headwater_epoch{node="1"}' in body and 'headwater_epoch{node="2"}' in body
    assert 'outcome="refused"' in body and not any(password in body for password in USERS.values())
    status, body = server.get("/health", "admin")
    assert status == 200 and json.loads(body)["components"] == dict.fromkeys(
        ("broker-1", "broker-2", "gateway"), "healthy"
    )


@promise("S2")
def test_the_catalog(server: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the users of Kafka, at the gateway and by its former URL: the supervisor passes on who asks."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)  # they would count before the client's own settings
    for user, password, code in (("", "", 401), ("alice", "wrong", 401), ("alice", USERS["alice"], 200)):
        status, body = server.get("/iceberg/v1/namespaces/topics/tables", user, password, at=server.gateway)
        assert status == code
        status, lead = server.get("/iceberg/v1/namespaces/topics/tables", user, password)
        assert status == (421 if code == 200 else code), "a redirect would lose the password"
        assert code != 200 or f"https://{server.gateway}/iceberg" in lead
        assert json.loads(body).get("error", {}).get("code", 200) == code
    ca = {"cabundle": str(server.directory / "issuer.pem")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        tries = [
            (address, password) for address in (server.http, server.gateway) for password in (USERS["alice"], "wrong")
        ]
        for address, password in tries:
            auth = {"type": "basic", "basic": {"username": "alice", "password": password}}
            more = {"uri": f"https://{address}/iceberg", "ssl": ca, "auth": auth}
            if password == "wrong":
                with pytest.raises(UnauthorizedError):
                    RestCatalog("headwater", **more)
                continue
            catalog = RestCatalog("headwater", **more)
            assert catalog.list_namespaces() == [("topics",)] and catalog.list_tables("topics") == []
            catalog.close()


@promise("S3")
def test_children_answer_nobody_else(server: Secured) -> None:
    """Whoever finds a child's port gets nothing there, with the right password neither."""
    public = (server.port, server.port + 1, int(server.gateway.rpartition(":")[2]))
    ports = [
        connection.laddr.port
        for child in (server.broker(1), server.broker(2), server.gateway_process())
        for connection in child.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port not in public
    ]
    answers = [
        _answer(server, path, user, port)
        for port in ports
        for path in ("/metrics", "/health", "/readyz", "/iceberg/v1/config")
        for user in ("", "admin")
    ]
    told = [answer for answer in answers if answer is not None]
    assert len(ports) == 5 and len(told) == len(answers) // 5 * 3, "of two ports of a broker one is for pages"
    assert all(status == 403 and "supervisor" in body for status, body in told)


def _answer(server: Secured, path: str, user: str, port: int) -> tuple[int, str] | None:
    """A page; `None` from a port that is for brokers and speaks another protocol."""
    try:
        return server.get(path, user, host=f"127.0.0.1:{port}")
    except (OSError, http.client.HTTPException):
        return None


@promise("S3")
def test_secrets_stay_secret(server: Secured) -> None:
    """No password in the log, nor what the supervisor and its children know each other by on disk."""
    server.get("/metrics", "alice", "a wrong guess")
    text = server.end_of_log()
    assert "a log-in over HTTP failed" in text
    assert not any(word in text for word in (*USERS.values(), "a wrong guess"))
    for file in (server.data / "run").glob("*.json"):
        tls = json.loads(file.read_text())["security"]["http"]["certificate"]
        assert bool(tls) == (file.name == "gateway.json"), "the supervisor's TLS is not for its children"
        assert not any(re.search("secret|password", name) for name in _filled(json.loads(file.read_text())))


def _filled(settings: dict[str, Any]) -> Iterator[str]:
    """The names of settings that are no files, and not empty, at any depth."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _filled(value)
        elif value and not name.endswith("_file"):
            yield name


@promise("S3")
def test_settings_that_would_open_the_pages(tmp_path: Path) -> None:
    """`headwater up` beyond loopback wants an authentication of its pages."""
    file = tmp_path / "settings.toml"
    file.write_text('http = "0.0.0.0:0"\n[security.http]\nauthentication = "none"\n')
    done = headwater("up", "--no-lake", "--data", str(tmp_path / "data"), "--config", str(file))
    assert done.returncode == 1 and "security.http.authentication" in done.stderr
