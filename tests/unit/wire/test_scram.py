"""SCRAM against the vectors of its RFC, both sides against each other, and against nonsense."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.wire.scram import (
    MECHANISMS,
    ClientSide,
    ScramFailed,
    ServerSide,
    derive_keys,
    salt_password,
)
from tests.support.promise import promise

PROMISES = ("S1",)

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


@promise("S1")
def test_the_example_of_rfc_7677() -> None:
    """Byte for byte, on both sides."""
    server = ServerSide(1, SERVER_NONCE)
    client = ClientSide(1, "user", "pencil", CLIENT_NONCE)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.first(client.first()) == "user"
    challenge = server.challenge(SALT, 4096)
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.final(challenge) == FINAL
    last = server.final(FINAL, *derive_keys(1, salt_password(1, "pencil", SALT, 4096)))
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)


@promise("S1")
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(MECHANISMS.values())),
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=20),
    st.binary(min_size=1, max_size=16),
)
def test_only_the_right_password_is_let_in(mechanism: int, name: str, stored: str, typed: str, salt: bytes) -> None:
    """Whatever is in names and passwords, commas and equals signs too."""
    server, client = ServerSide(mechanism, "server"), ClientSide(mechanism, name, typed, "client")
    assert server.first(client.first()) == name
    keys = derive_keys(mechanism, salt_password(mechanism, stored, salt, 16))
    proof = client.final(server.challenge(salt, 16))
    if typed == stored:
        client.check(server.final(proof, *keys))
    else:
        with pytest.raises(ScramFailed):
            server.final(proof, *keys)


@promise("S1")
@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"n,,n=u", b"n,,r=x,n=u", b"p=tls-unique,,n=u,r=x", b"n,,m=ext,n=u,r=x", b"n,a=other,n=u,r=x",
     b"n,,n=u=41,r=x", b"\xff\xfe,,n=u,r=x", b"n,,n=u,r=", b"x,,n=u,r=y"],
)  # fmt: skip
def test_first_messages_that_are_refused(message: bytes) -> None:
    """Also channel binding and acting for others, which are not offered."""
    with pytest.raises(ScramFailed):
        ServerSide(1, "s").first(message)


@promise("S1")
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_last_messages_of_noise_are_refused(noise: bytes) -> None:
    """Nothing but a proof opens the door, and nothing but `ScramFailed` comes out."""
    server = ServerSide(1, SERVER_NONCE)
    server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    server.challenge(SALT, 4096)
    keys = derive_keys(1, b"salted")
    for message in (noise, FINAL[:-44] + b64encode(noise), b"c=biws,r=" + noise, noise + FINAL[8:]):
        with pytest.raises(ScramFailed):
            server.final(message, *keys)


@promise("S1")
@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=client,s=c2FsdA==,i=4096", b"r=other,s=c2FsdA==,i=4096", b"r=clientX,s=c2FsdA==,i=0",
     b"r=clientX,s=c2FsdA==,i=99999999", b"r=clientX,s=!!,i=4096", b"r=clientX,s=c2FsdA==,i=x"],
)  # fmt: skip
def test_a_client_refuses_challenges_that_make_no_sense(challenge: bytes) -> None:
    """Also a server that would have it compute for ever."""
    with pytest.raises(ScramFailed):
        ClientSide(1, "u", "p", "client").final(challenge)


@promise("S1")
def test_a_server_that_does_not_know_the_user_is_found_out() -> None:
    """The server's last message is a proof too."""
    client = ClientSide(2, "u", "p", "client")
    client.final(b"r=clientX,s=c2FsdA==,i=4096")
    with pytest.raises(ScramFailed):
        client.check(b"v=AAAA")
