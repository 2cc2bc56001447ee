"""What Spark opens: files whose names it must not take for patterns, and objects in S3 with credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.query.engines.spark.places import Places, can_read
from headwater.settings.objects import StoreOptions

KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "r"}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_files() -> None:
    places = Places(Path("/a [b]{c}*?\\d%20").as_uri(), StoreOptions())
    assert places.of("t/1.parquet") == "file:/a \\[b\\]\\{c\\}\\*\\?\\\\d%20/t/1.parquet"
    assert places.directories == ["/a [b]{c}*?\\d%20"] and places.hadoop == {} and places.class_path == ""


def test_objects_in_s3(tmp_path: Path) -> None:
    options = StoreOptions(provider={**KEYS, "endpoint": "http://127.0.0.1:9000"})
    places = Places("s3://bucket/x/", options, [str(tmp_path), "/some.jar"])
    assert places.of("t/1.parquet") == "s3a://bucket/x/t/1.parquet" and places.directories == [
        str(tmp_path),
        "/some.jar",
    ]
    assert places.class_path == f"{tmp_path}/*:/some.jar"
    assert places.hadoop == {
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": "b",
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    passing = Places("s3://bucket", StoreOptions(provider={**KEYS, "session_token": "t"}), ["/some.jar"]).hadoop
    assert passing["fs.s3a.session.token"] == "t" and "Temporary" in passing["fs.s3a.aws.credentials.provider"]
    assert "fs.s3a.endpoint" not in passing and passing["fs.s3a.path.style.access"] == "false"


def test_stores_that_spark_cannot_read() -> None:
    assert can_read("file:///a", ()) and can_read("s3://b/x", ("/some.jar",))
    for store, jars in (("s3://b", ()), ("gs://b", ("/some.jar",))):
        assert not can_read(store, jars)
        with pytest.raises(ConfigError, match=r"sql\.spark_jars"):
            Places(store, StoreOptions(), jars)
