"""Who a certificate names, and certificates that change while a listener is open."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.security.tls import Certificates, check_rules, principal_of
from headwater.settings.settings import ListenerSecurity
from tests.support.certificates import issue
from tests.support.promise import promise

PROMISES = ("S1",)

SUBJECT = {"subject": ((("countryName", "DE"),), (("organizationName", "Acme, Inc"),), (("commonName", "alice"),))}


@promise("S1")
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), r"User:CN=alice,O=Acme\, Inc,C=DE"),
        (("DEFAULT",), r"User:CN=alice,O=Acme\, Inc,C=DE"),
        (("RULE:^CN=(.*?),.*$/$1/",), "User:alice"),
        (("RULE:^CN=(.*?),.*$/$1@x/U",), "User:ALICE@X"),
        (("RULE:^OU=(.*?),.*$/$1/", "RULE:^CN=(.*?),.*C=(..)$/$2-$1/L"), "User:de-alice"),
        (("RULE:nothing/$1/", "DEFAULT"), r"User:CN=alice,O=Acme\, Inc,C=DE"),
    ],
)
def test_names_of_certificates(rules: tuple[str, ...], expected: str) -> None:
    """As Java writes a subject, or as the first rule that fits makes it."""
    check_rules(rules)
    assert principal_of(SUBJECT, rules) == expected


@promise("S1")
def test_odd_subjects() -> None:
    """What has a meaning in a name is escaped, so that no subject can pass for another."""
    odd = {"subject": ((("commonName", '#a+b"<c>;\\ '), ("userId", "u")), (("emailAddress", "a@b"),))}
    assert principal_of(odd) == 'User:1.2.840.113549.1.9.1=#1603614062,CN=\\#a\\+b\\"\\<c\\>\\;\\\\\\ +UID=u'


@promise("S1")
@pytest.mark.parametrize("rule", ["x", "RULE:a", "RULE:(/b/", "RULE:a/b/X", "default"])
def test_rules_that_cannot_be_read(rule: str) -> None:
    """Refused at the start."""
    with pytest.raises(ConfigError):
        check_rules([rule])


@promise("S1")
def test_certificates_are_read_anew(tmp_path: Path) -> None:
    """New connections see the new certificate and issuer of clients; what cannot be used changes nothing."""
    one, two = issue(tmp_path, "issuer-one"), issue(tmp_path, "issuer-two")
    first, second = issue(tmp_path, "first", one), issue(tmp_path, "second", one)
    alice, bob = issue(tmp_path, "alice", one), issue(tmp_path, "bob", two)
    certificate, key, issuers = tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "issuers.pem"

    def install(pair_certificate: Path, pair_key: Path, trusted: Path) -> None:
        for source, target in ((pair_certificate, certificate), (pair_key, key), (trusted, issuers)):
            shutil.copy(source, target)

    install(first.certificate, first.key, one.certificate)
    own = ListenerSecurity(
        protocol="SSL", certificate=str(certificate), key=str(key), client_ca=str(issuers), client_auth="required"
    )

    async def main() -> None:
        certificates = Certificates("TEST", own)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(100))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
        port = server.sockets[0].getsockname()[1]

        async def shown_to(client: str) -> str | None:
            context = ssl.create_default_context(cafile=str(one.certificate))
            context.load_cert_chain(tmp_path / f"{client}.pem", tmp_path / f"{client}.key")
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                name = principal_of(writer.get_extra_info("peercert"))
                writer.write(b"hello")
                answer = await reader.read(100)
                writer.close()
            except (ssl.SSLError, ConnectionError):
                return None
            return name if answer == b"hello" else None

        async with server:
            assert await shown_to("alice") == "User:CN=first"
            assert await shown_to("bob") is None
            assert not certificates.reload(), "nothing has changed"
            install(second.certificate, first.key, one.certificate)
            assert not certificates.reload(), "they do not belong together"
            assert await shown_to("alice") == "User:CN=first"
            install(second.certificate, second.key, two.certificate)
            assert certificates.reload()
            assert await shown_to("bob") == "User:CN=second"
            assert await shown_to("alice") is None

    asyncio.run(main())
    assert alice.key.exists() and bob.key.exists()


@promise("S1")
def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Said at the start, without what is in them."""
    bad = tmp_path / "bad.pem"
    bad.write_text("secret nonsense")
    with pytest.raises(ConfigError) as error:
        Certificates("TEST", ListenerSecurity(protocol="SSL", certificate=str(bad), key=str(bad)))
    assert "TEST" in str(error.value) and "secret" not in str(error.value)
