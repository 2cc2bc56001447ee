"""Which tokens are believed."""

from __future__ import annotations

import asyncio
import http.server
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.security.tokens import TokenRefused, Tokens
from headwater.settings.settings import Oauth
from tests.support.certificates import Signer, key_document
from tests.support.promise import promise

PROMISES = ("S1",)

NOW = 1_700_000_000
GOOD: dict[str, Any] = {"iss": "https://issuer", "aud": "headwater", "sub": "alice", "exp": NOW + 60, "iat": NOW}
RSA, CURVE, STRANGER, SHORT = (
    Signer("r", "RS256"),
    Signer("e", "ES256"),
    Signer("r", "RS256"),
    Signer("s", "RS256", 1024),
)


class FixedClock:
    """Time that stands still until it is moved."""

    now = 1000.0

    def wall_ms(self) -> int:
        return NOW * 1000

    def monotonic(self) -> float:
        return self.now


def tokens(location: str, clock: FixedClock | None = None, **more: Any) -> Tokens:
    oauth = Oauth(jwks=location, issuer="https://issuer", audience="other, headwater", clock_skew_ms=5000, **more)
    return Tokens(oauth, clock or FixedClock())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_text(key_document(RSA, CURVE, SHORT))
    return file


@promise("S1")
@pytest.mark.parametrize("signer", [RSA, CURVE], ids=["RS256", "ES256"])
def test_good_tokens(keys: Path, signer: Signer) -> None:
    """Both algorithms; one audience of several; the name from the claim that the settings name."""
    found = asyncio.run(tokens(str(keys)).check(signer.token(GOOD)))
    assert (found.name, found.expires_ms) == ("alice", (NOW + 60) * 1000)
    several = signer.token({**GOOD, "aud": ["x", "headwater"], "mail": "a@b"})
    assert asyncio.run(tokens(str(keys), principal_claim="mail").check(several)).name == "a@b"


BAD: dict[str, str] = {
    "nothing": "",
    "two parts": "a.b",
    "noise": "?.?.?",
    "expired": RSA.token({**GOOD, "exp": NOW - 6}),
    "for ever": RSA.token({k: v for k, v in GOOD.items() if k != "exp"}),
    "expiry is text": RSA.token({**GOOD, "exp": "tomorrow"}),
    "not yet": RSA.token({**GOOD, "nbf": NOW + 6}),
    "from the future": RSA.token({**GOOD, "iat": NOW + 6}),
    "another issuer": RSA.token({**GOOD, "iss": "https://evil"}),
    "another audience": RSA.token({**GOOD, "aud": "somebody"}),
    "no audience": RSA.token({**GOOD, "aud": None}),
    "nobody": RSA.token({**GOOD, "sub": ""}),
    "another key of the same name": STRANGER.token(GOOD),
    "an unknown key": RSA.token(GOOD, kid="x"),
    "no key's name": RSA.token(GOOD, kid=""),
    "a key of the other kind": CURVE.token(GOOD, kid="r"),
    "the algorithm of the other kind": RSA.token(GOOD, alg="ES256"),
    "a short key": SHORT.token(GOOD),
    "no signature": RSA.token(GOOD, alg="none").rsplit(".", 1)[0] + ".",
    "a shared secret": RSA.token(GOOD, alg="HS256"),
    "a changed claim": RSA.token(GOOD)[:60] + "A" + RSA.token(GOOD)[61:],
}


@promise("S1")
@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
def test_bad_tokens(keys: Path, token: str) -> None:
    """Refused, and the message does not repeat the token."""
    with pytest.raises(TokenRefused) as refused:
        asyncio.run(tokens(str(keys)).check(token))
    assert not token or token not in str(refused.value)


@promise("S1")
def test_new_keys_are_found_and_lost_documents_do_no_harm(keys: Path) -> None:
    """A key that is not known brings the reading forward, but not at every token."""

    async def main() -> None:
        clock = FixedClock()
        checker = tokens(str(keys), clock)
        fresh = Signer("new", "ES256")
        await checker.check(RSA.token(GOOD))
        keys.write_text(key_document(fresh))
        with pytest.raises(TokenRefused):
            await checker.check(fresh.token(GOOD))
        clock.now += 11
        assert (await checker.check(fresh.token(GOOD))).name == "alice"
        with pytest.raises(TokenRefused):
            await checker.check(RSA.token(GOOD))
        keys.write_text('{"keys": [{"kty": "RSA", "kid": "new"}, 7], "more": 1')
        clock.now += 4000
        assert (await checker.check(fresh.token(GOOD))).name == "alice"

    asyncio.run(main())


@promise("S1")
def test_keys_by_http_from_loopback_only() -> None:
    """Elsewhere the way must be one on which nobody can change them; redirects are not followed."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
                return
            body = key_document(RSA).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{server.server_address[1]}"
            assert asyncio.run(tokens(f"{place}/keys").check(RSA.token(GOOD))).name == "alice"
            with pytest.raises(TokenRefused):
                asyncio.run(tokens(f"{place}/moved").check(RSA.token(GOOD)))
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(ConfigError):
        tokens("http://example.org/keys")
