"""Options of stores over a network: checked, handed on, and silent about secrets."""

import re
from typing import Any

import pytest

from headwater.errors import ConfigError
from headwater.objects import open_store
from headwater.settings.objects import StoreOptions, from_environment
from headwater.settings.settings import load
from tests.support.promise import promise

PROMISES = ("M7", "S3")

SECRET = "very-secret-indeed"


@promise("M7")
@pytest.mark.parametrize(
    "wrong",
    [
        {"connect_ms": 0},
        {"retries": -1},
        {"hedge_percent": 51},
        {"attempt_ms": 10, "total_ms": 9},
        {"part_bytes": 1 << 20},
        {"checksum": "crc32"},
        {"encryption": "AES256"},
        {"kms_key": "arn:aws:kms:eu-central-1:1:key/1"},
        {"encryption": "sse-s3", "kms_bucket_key": True},
        {"unknown": 1},
        {"provider": "no section"},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """When settings are read, not when the first object is stored."""
    with pytest.raises(ConfigError):
        load(environment={}, flags={f"object_store.{name}": value for name, value in wrong.items()})


@promise("M7")
def test_they_are_settings() -> None:
    """A file, the environment and flags give them as they give all others."""
    given = {"HEADWATER_OBJECT_STORE__ENCRYPTION": "sse-kms", "HEADWATER_OBJECT_STORE__PROVIDER__REGION": "eu-west-1"}
    options = load(environment=given, flags={"object_store.retries": 3}).object_store
    assert (options.encryption, options.provider, options.retries) == ("sse-kms", {"region": "eu-west-1"}, 3)


@promise("M7")
def test_they_are_handed_on_to_children() -> None:
    """A checkpoint's writer and a Spark worker store as their parent does."""
    assert StoreOptions().variables() == {}
    options = StoreOptions(
        encryption="sse-kms", kms_key="a", kms_bucket_key=True, retries=0, provider={"endpoint": "http://127.0.0.1:1"}
    )
    assert from_environment({**options.variables(), "PATH": "/bin"}) == options
    with pytest.raises(ConfigError):
        from_environment({"HEADWATER_OBJECT_STORE__RETRIES": "many"})
    with pytest.raises(ConfigError):
        from_environment({"HEADWATER_OBJECT_STORE__RETRIES": "-1"})


@promise("S3")
def test_secrets_are_not_shown() -> None:
    """Neither options nor settings nor a store show what may be a secret, nor does the error of a wrong one."""
    options = StoreOptions(provider={"secret_access_key": SECRET, "access_key_id": "me"})
    settings = load(environment={}, flags={"object_store.provider": options.provider})
    store = open_store("s3://bucket/prefix", options)
    for text in (repr(options), str(options), repr(settings), repr(store), repr(store.__dict__)):
        assert SECRET not in text
    assert re.search("secret_access_key", repr(options)), "that there is one may be known"
    with pytest.raises(ConfigError) as caught:
        open_store("s3://bucket", StoreOptions(provider={"no_such_option": SECRET}))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
