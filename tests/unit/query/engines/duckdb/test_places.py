"""What a worker may reach: the directory of a local store, or the port of a store over a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.query.engines.duckdb import places
from headwater.query.engines.duckdb.places import HERE, Places
from headwater.settings.objects import StoreOptions

KEYS = {"access_key_id": "a", "secret_access_key": "b"}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def remote(**provider: str) -> Places:
    return Places("s3://bucket/x", StoreOptions(provider=provider))


def test_a_local_store_needs_no_port(tmp_path: Path) -> None:
    local = Places(tmp_path.as_uri(), StoreOptions())
    assert local.ports == frozenset() and local.directories == [str(tmp_path)]


def test_the_port_of_a_store() -> None:
    assert remote(endpoint="http://127.0.0.1:9000", **KEYS).ports == {9000}
    assert remote(endpoint="http://store", **KEYS).ports == {80}
    assert remote(**KEYS).ports == {443} and remote(**KEYS).directories == []


def test_credentials_of_a_cloud_come_from_its_services() -> None:
    assert remote(endpoint="http://127.0.0.1:9000").ports == {9000, 80, 443}


def test_ports_behind_a_proxy_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert remote(**KEYS).ports is None


def test_a_path_that_looks_like_a_pattern_is_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a [b] *?"
    root.mkdir()
    monkeypatch.chdir(tmp_path)
    plain, odd = (Places(path.as_uri(), StoreOptions()) for path in (tmp_path, root))
    plain.enter()
    assert Path.cwd() == tmp_path and plain.of("x/y") == f"{tmp_path}/x/y"
    odd.enter()
    assert Path.cwd() == root and odd.of("x/y") == f"{HERE}/x/y" and odd.directories == [str(root)]
    monkeypatch.setattr(places, "HERE", "/nowhere")
    with pytest.raises(ConfigError, match="cannot read a path"):
        Places(root.as_uri(), StoreOptions()).enter()
