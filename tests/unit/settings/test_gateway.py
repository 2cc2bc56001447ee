"""Settings of the gateway that cannot work are refused by name; the URL that clients are given."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.settings.gateway import Gateway, public_url
from headwater.settings.settings import load


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("body_bytes", 0),
        ("requests", -1),
        ("idle_ms", 0),
        ("http", "8081"),
        ("http", "0.0.0.0:8081"),
        ("flight", "8082"),
        ("url", "gateway.example:8081"),
        ("url", "http://gateway.example/below"),
        ("origins", ["example.com"]),
        ("origins", ["https://example.com/"]),
        ("origin", "*"),
    ],
)
def test_values_that_cannot_work(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"gateway|HOST:PORT|origin"):
        load(None, {}, {f"gateway.{name}": value})


def test_values_that_work() -> None:
    flags = {"http": "0.0.0.0:0", "url": "https://api.example", "origins": ["*", "https://a.example:1"]}
    own = load(None, {}, {f"gateway.{name}": value for name, value in flags.items()}).gateway
    assert own.origins == ("*", "https://a.example:1")
    assert load(None, {}, {"gateway.http": "0.0.0.0:1", "gateway.enabled": False}).gateway.enabled is False


def test_the_url_that_clients_are_given() -> None:
    assert public_url(Gateway(), "127.0.0.1", 8081, tls=False) == "http://127.0.0.1:8081"
    assert public_url(Gateway(), "::1", 1, tls=True) == "https://[::1]:1"
    assert public_url(Gateway(), "127.0.0.1", 0, tls=False) == "", "not known before it listens"
    assert public_url(Gateway(url="https://api.example/"), "127.0.0.1", 0, tls=False) == "https://api.example"
