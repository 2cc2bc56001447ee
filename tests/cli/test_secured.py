"""`user`, `acl`, and the options to connect, against a secured server."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.headwater import Headwater
from harness.ports import free_port
from headwater.cli import acl, common, consume, errors, produce, topic, user
from tests.support.certificates import issue
from tests.support.promise import promise

PROMISES = ("S1", "S2", "H3")

MODULES = (topic, produce, consume, user, acl)


class Secured:
    """Runs commands in this process against a server with TLS and log-ins."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        self._app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
        for module in MODULES:
            module.register(self._app)

    def file(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def credentials(self, name: str, password: str) -> list[str]:
        ca = str(self.directory / "issuer.pem")
        return ["--tls-ca", ca, "--user", name, "--password-file", self.file(f"{name}-{uuid.uuid4().hex}", password)]

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = common.call(self._app, [*arguments, "--bootstrap", self.address])
                out.flush()
        finally:
            sys.stdin = before
        return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]

    def admin(self, *arguments: str, stdin: bytes = b"") -> str:
        code, out, err = self(*arguments, *self.credentials("admin", "first"), stdin=stdin)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.admin(*arguments, "--output", "json"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """As docs/guides/security.md says: settings, the first user, then the brokers."""
    directory = tmp_path_factory.mktemp("secured-cli")
    server = issue(directory, "server", issue(directory, "issuer"))
    settings = (
        f'[security]\nacls = true\nsuper_users = "User:admin"\n'
        f"failed_logins_per_minute = 1000\n"
        f'[security.listeners.SASL_SSL]\nmechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"\n'
        f'certificate = "{server.certificate}"\nkey = "{server.key}"\n'
    )
    (directory / "first").write_text("first\n")
    address = f"127.0.0.1:{free_port()}"
    up = Headwater(directory, settings=settings, kafka=f"SASL_SSL={address}")
    up.prepare()
    up.cli("user", "add", "admin", "--config", str(up.config), "--new-password-file", str(directory / "first"))
    with up:
        yield Secured(directory, address)


@promise("H3", "S1")
def test_users_are_made_listed_and_deleted(secured: Secured) -> None:
    """And log in by every mechanism, until they are gone."""
    secured.admin("user", "add", "alice", "--new-password-file", secured.file("new", "wonder\n"))
    secured.admin("user", "add", "bob", "--scram", "scram-sha-256", "--iterations", "8192", "--new-password-file",
                  secured.file("bob", "b"))  # fmt: skip
    rows = {row["name"]: row["mechanisms"] for row in secured.json("user", "list")}
    assert rows["alice"] == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert rows["bob"] == {"SCRAM-SHA-256": 8192}
    assert "bob" in secured.admin("user", "list")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        code, _, err = secured("topic", "list", "--mechanism", mechanism, *secured.credentials("alice", "wonder"))
        assert (code, err) == (0, "there are no topics\n")
    secured.admin("user", "delete", "alice")
    assert "alice" not in {row["name"] for row in secured.json("user", "list")}
    code, _, err = secured("topic", "list", *secured.credentials("alice", "wonder"))
    assert code == errors.REFUSED and "SASL_AUTHENTICATION_FAILED" in err and "wonder" not in err
    code, _, err = secured("user", "delete", "alice", *secured.credentials("admin", "first"))
    assert code == errors.INPUT and "alice" in err


@promise("H3", "S2")
def test_rules_are_added_listed_and_removed(secured: Secured) -> None:
    """And count at once."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    secured.admin("topic", "create", name)
    secured.admin("user", "add", "carol", "--new-password-file", secured.file("carol", "c"))
    carol = secured.credentials("carol", "c")
    assert secured("produce", name, *carol, stdin=b"a\n")[0] == errors.REFUSED
    said = secured.admin("acl", "add", "--principal", "User:carol", "--operation", "write", "--operation", "read",
                         "--topic", name[:5], "--prefix")  # fmt: skip
    assert "2 rules added" in said
    assert secured("produce", name, *carol, stdin=b"a\n")[0] == 0
    assert secured("consume", name, *carol)[1] == "a\n"
    [row, _] = secured.json("acl", "list", "--topic", name, "--matching")
    assert row == {"principal": "User:carol", "permission": "allow", "operation": "read", "resource": "topic",
                   "name": name[:5], "pattern": "prefixed", "host": "*"}  # fmt: skip
    assert secured.json("acl", "list", "--topic", name) == []
    secured.admin("acl", "add", "--deny", "--principal", "User:*", "--operation", "all", "--topic", name)
    assert secured("consume", name, *carol)[0] == errors.REFUSED
    assert len(secured.json("acl", "remove", "--principal", "User:*")) == 1
    assert secured("consume", name, *carol)[0] == 0
    assert "2 rules removed" in secured.admin("acl", "remove", "--principal", "User:carol")
    assert secured.json("acl", "list") == []
    secured.admin("acl", "add", "--principal", "User:carol", "--operation", "describe", "--cluster", "--group", "g")
    assert secured("user", "list", *carol)[0] == 0
    assert len(secured.json("acl", "remove", "--all")) == 2


@promise("H3")
@pytest.mark.parametrize(
    "arguments",
    [
        ["acl", "add"],
        ["acl", "add", "--principal", "User:x", "--operation", "fly", "--topic", "t"],
        ["acl", "add", "--principal", "User:x", "--operation", "read"],
        ["acl", "remove"],
        ["acl", "list", "--topic", "t", "--group", "g"],
        ["user", "add", "x"],
        ["user", "add", "x", "--new-password-file", "/nowhere/at/all"],
        ["user", "add", "x", "--scram", "MD5", "--new-password-file", "/dev/null"],
        ["topic", "list", "--user", "x"],
        ["topic", "list", "--user", "x", "--password-file", "/dev/null"],
        ["topic", "list", "--mechanism", "GSSAPI"],
        ["topic", "list", "--tls-ca", "/nowhere/at/all"],
        ["topic", "list", "--tls-cert", "/nowhere"],
        ["topic", "list", "--client-config", "/nowhere", "--tls"],
    ],
)
def test_what_makes_no_sense(secured: Secured, arguments: list[str]) -> None:
    """Exit code 1, before anything is sent."""
    code, out, err = secured(*arguments)
    assert (code, out) == (errors.INPUT, "") and err.startswith("headwater: ")


@promise("H3", "S1")
def test_a_file_with_everything_in_it(secured: Secured) -> None:
    """librdkafka's names; anything else in it is refused."""
    good = f"# admin\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=first\n" \
           f"ssl.ca.location={secured.directory}/issuer.pem\n"  # fmt: skip
    assert secured("topic", "list", "--client-config", secured.file("good", good))[0] == 0
    code, _, err = secured("topic", "list", "--client-config", secured.file("bad", good + "group.id=x\n"))
    assert code == errors.INPUT and "line 7" in err and "first" not in err


@promise("S1")
def test_servers_that_are_not_trusted(secured: Secured, tmp_path: Path) -> None:
    """Another issuer, no TLS at all, and no log-in."""
    other = issue(tmp_path, "other")
    code, _, err = secured("topic", "list", "--tls-ca", str(other.certificate))
    assert code == errors.REFUSED and "TLS" in err
    assert secured("topic", "list")[0] == errors.REFUSED
    code, _, err = secured("topic", "list", "--tls-ca", str(secured.directory / "issuer.pem"))
    assert code == errors.REFUSED and "the broker may require a log-in" in err
