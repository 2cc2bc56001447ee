"""Settings of an external schema registry: what works, and what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.settings.schema_registry import SchemaRegistry, check_schema_registry
from headwater.settings.settings import load
from tests.support.promise import promise


@promise("T6")
def test_sound_settings() -> None:
    """By default the cluster's own registry is asked."""
    assert load(environment={}).schema_registry.url == ""
    given = {"HEADWATER_SCHEMA_REGISTRY__URL": "https://registry:8081/base"}
    assert load(environment=given).schema_registry.url == "https://registry:8081/base"
    check_schema_registry(SchemaRegistry(url="http://[::1]:1", user="u", password_file="f"))
    check_schema_registry(SchemaRegistry(url="http://r", token_env="T"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "registry:8081"}, "url must be"),
        ({"url": "http://"}, "url must be"),
        ({"url": "http://u:p@host"}, "url must be"),
        ({"url": "http://host:x"}, "url must be"),
        ({"url": "http://host?a=b"}, "url must be"),
        ({"user": "u"}, "user needs"),
        ({"password_env": "P"}, "they need a user"),
        ({"user": "u", "password_env": "P", "token_env": "T"}, "give one of them"),
        ({"certificate": "c"}, "needs key"),
        ({"timeout_ms": 0}, "above 0"),
        ({"retries": -1}, "not below 0"),
    ],
)
def test_what_cannot_work(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_schema_registry(SchemaRegistry(**given))
