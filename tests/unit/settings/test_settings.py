"""Settings from a file, the environment and flags, strictly checked."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.app.compactor import slots
from headwater.errors import ConfigError
from headwater.settings.settings import MIB, Lake, Settings, Spark, load, parse_address, parse_listeners
from tests.support.promise import promise

PROMISES = ("O8", "O1")


@promise("O8")
def test_defaults() -> None:
    """Nothing has to be set."""
    settings = load(environment={})
    assert settings == Settings()
    assert settings.ledger_url == f"sqlite://{Path('headwater-data').absolute()}/ledger.db"
    assert settings.objects_url == (Path("headwater-data").absolute() / "objects").as_uri()
    assert settings.default_profile == "latency"


@promise("T12")
@pytest.mark.parametrize(("cores", "tasks"), [(1, 1), (2, 1), (3, 2), (16, 15)])
def test_settling_leaves_a_core(monkeypatch: pytest.MonkeyPatch, cores: int, tasks: int) -> None:
    """To brokers, unless the settings name a master."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert Spark().chosen_master == f"local[{tasks}]"
    assert Spark(master="spark://there:7077").chosen_master == "spark://there:7077"
    assert slots(Lake()) == tasks


@promise("O8")
def test_each_overrides_the_one_before(tmp_path: Path) -> None:
    """File, then environment, then flags."""
    file = tmp_path / "settings.toml"
    file.write_text('zone = "a"\nnode = 5\nbrokers = 2\n[wal]\nhold_ms = 7\n[limits]\nconnections = 9\n')
    environment = {"HEADWATER_NODE": "6", "HEADWATER_LIMITS__CONNECTIONS": "10", "PATH": "/bin", "HEADWATERX": "1"}
    settings = load(str(file), environment, {"brokers": 3, "limits.fetch_sessions": 4, "zone": None})
    assert (settings.zone, settings.node, settings.brokers) == ("a", 6, 3)
    assert (settings.wal.hold_ms, settings.limits.connections, settings.limits.fetch_sessions) == (7, 10, 4)
    assert settings.limits.frame_bytes == 100 * MIB


@promise("O8")
def test_json(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"zone": "j", "cache": {"wal_bytes": 5}}))
    settings = load(str(file), {})
    assert (settings.zone, settings.cache.wal_bytes) == ("j", 5)


@promise("L5", "O8")
def test_one_value_of_a_profile(tmp_path: Path) -> None:
    """The others keep the defaults of that very profile."""
    file = tmp_path / "settings.toml"
    file.write_text("[wal.latency]\ngather_ms = 3\n")
    settings = load(str(file), {"HEADWATER_WAL__COST__FLUSHES": "9"})
    default = Settings().wal
    assert settings.wal.cost.flushes == 9
    assert settings.wal.cost.min_interval_ms == default.cost.min_interval_ms == 200
    assert settings.wal.latency.gather_ms == 3
    assert settings.wal.latency.object_bytes == default.latency.object_bytes


@promise("O8")
def test_types_from_text() -> None:
    """The environment knows only text."""
    assert load(environment={"HEADWATER_AUTO_CREATE_TOPICS": "false"}).auto_create_topics is False
    assert load(environment={"HEADWATER_DEFAULT_PARTITIONS": "7"}).default_partitions == 7


@promise("O8")
def test_variables_of_the_tests_are_no_settings() -> None:
    assert load(environment={"HEADWATER_TEST_BOOTSTRAP": "x:1"}) == Settings()


@promise("O8")
@pytest.mark.parametrize(
    "flags",
    [
        {"no_such": 1},
        {"wal.no_such": 1},
        {"no_such.name": 1},
        {"zone.name": "x"},
        {"zone": 5},
        {"zone": ""},
        {"zone": "a/b"},
        {"node": -1},
        {"node": "one"},
        {"brokers": 0},
        {"brokers": 65},
        {"process_session_ms": 599},
        {"default_partitions": 0},
        {"default_partitions": 10_001},
        {"auto_create_topics": "perhaps"},
        {"limits.frame_bytes": 0},
        {"limits.connections": -1},
        {"limits": 5},
        {"cache.wal_bytes": 0},
        {"housekeeping.interval_ms": 0},
        {"housekeeping.lease_ms": "long"},
        {"wal.hold_ms": -1},
        {"wal.cost.flushes": 0},
        {"wal.latency.object_bytes": 0},
        {"wal.latency.gather_ms": -1},
        {"wal.cost.min_interval_ms": -1},
        {"kafka": "nowhere"},
        {"kafka": "host:99999"},
        {"kafka": "a=h:1,a=h:2"},
        {"advertise": "x"},
        {"http": ":8080"},
        {"http": "localhost:"},
        {"lake.tag_hours": -1},
        {"lake.niceness": 20},
        {"lake.niceness": -1},
        {"lake.version_age_ms": -1},
        {"lake.foreign_retry_ms": 0},
        {"transactions.version": 0},
        {"transactions.version": 3},
        {"transactions.max_timeout_ms": 0},
    ],
)
def test_refused(flags: dict[str, Any]) -> None:
    """Unknown names, wrong types and values out of range, with a word on which."""
    with pytest.raises(ConfigError):
        load(environment={}, flags=flags)


@pytest.mark.parametrize("name", ["limits.frame_bytes", "peers.connections", "lake.job_bytes", "groups.max_members"])
def test_a_refusal_names_the_setting_with_its_section(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load(environment={}, flags={name: 0})


@promise("O8")
def test_unknown_variables_are_refused() -> None:
    """A misspelt variable is a mistake, not a wish that is ignored."""
    for given, nearest in {
        "HEADWATER_BROKERZ": "HEADWATER_BROKERS",
        "HEADWATER_WAL_HOLD_MS": "HEADWATER_WAL__HOLD_MS",
    }.items():
        with pytest.raises(ConfigError, match=f"there is no setting {given}; the nearest one is {nearest};"):
            load(environment={given: "3"})
    with pytest.raises(ConfigError, match="there is no setting HEADWATER_Q; docs"):
        load(environment={"HEADWATER_Q": "3"})


@promise("O8")
def test_unknown_names_of_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text, words in {
        "[wal]\nhold_m = 3": "no setting wal.hold_m; the nearest one is wal.hold_ms",
        "nodes = 3": "no setting nodes; the nearest one is node",
        "[wall.cost]\nflushes = 3": "no setting wall.cost.flushes; the nearest one is wal.cost.flushes",
    }.items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load(str(file))


@promise("O8")
def test_the_gateway_of_commands_is_no_setting_of_a_process() -> None:
    assert load(environment={"HEADWATER_GATEWAY_URL": "http://127.0.0.1:1"}) == Settings()


@promise("O8")
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("zone = \n")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    odd = tmp_path / "odd.json"
    odd.write_text("[1, 2]")
    for file in (broken, binary, odd, tmp_path / "missing.toml"):
        with pytest.raises(ConfigError, match=file.name):
            load(str(file), {})


@promise("O8", "L5")
def test_urls() -> None:
    """A cloud's store is paid by the request, so its default is the cost profile."""
    settings = load(environment={}, flags={"objects": "s3://bucket/x", "ledger": "sqlite:///a/b.db"})
    assert (settings.objects_url, settings.ledger_url) == ("s3://bucket/x", "sqlite:///a/b.db")
    assert settings.default_profile == "cost"


@promise("O1")
@pytest.mark.parametrize(
    ("text", "address"),
    [("localhost:1", ("localhost", 1)), (" 0.0.0.0:65535 ", ("0.0.0.0", 65535)), ("[::1]:9092", ("::1", 9092))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@promise("O1")
def test_listeners() -> None:
    """Several, by name; one without a name is PLAINTEXT."""
    assert parse_listeners("h:1") == {"PLAINTEXT": ("h", 1)}
    assert parse_listeners("IN=h:1, OUT=[::]:2") == {"IN": ("h", 1), "OUT": ("::", 2)}
    for text in ("", "h:1,h:2", "A=h:1,A=h:2", "A=", "A=h:x"):
        with pytest.raises(ConfigError):
            parse_listeners(text)


@promise("S1", "S3")
@pytest.mark.parametrize(
    ("security", "kafka"),
    [
        ({"listeners": {"X": {"protocol": "TLS"}}}, "X=127.0.0.1:1"),
        ({"listeners": {"X": {"protocol": "SSL"}}}, "X=127.0.0.1:1"),
        ({}, "SASL_SSL=127.0.0.1:1"),
        ({"listeners": {"SASL_PLAINTEXT": {"mechanisms": "GSSAPI"}}}, "SASL_PLAINTEXT=127.0.0.1:1"),
        ({"listeners": {"SASL_PLAINTEXT": {"mechanisms": ""}}}, "SASL_PLAINTEXT=127.0.0.1:1"),
        ({"listeners": {"SASL_PLAINTEXT": {"mechanisms": "OAUTHBEARER"}}}, "SASL_PLAINTEXT=127.0.0.1:1"),
        ({"listeners": {"X": {"client_auth": "maybe"}}}, "X=127.0.0.1:1"),
        ({"listeners": {"X": {"client_auth": "required"}}}, "X=127.0.0.1:1"),
        ({"listeners": {"X": {"color": "red"}}}, "X=127.0.0.1:1"),
        ({"super_users": "admin"}, "127.0.0.1:1"),
        ({"login_ms": 0}, "127.0.0.1:1"),
        ({"session_ms": -1}, "127.0.0.1:1"),
        ({"http": {"authentication": "kerberos"}}, "127.0.0.1:1"),
        ({"http": {"authentication": "bearer"}}, "127.0.0.1:1"),
        ({"http": {"certificate": "a.pem"}}, "127.0.0.1:1"),
        ({"http": {"key": "a.key"}}, "127.0.0.1:1"),
        ({"http": {"certificate": "a", "key": "b", "client_auth": "maybe"}}, "127.0.0.1:1"),
        ({"http": {"certificate": "a", "key": "b", "client_auth": "required"}}, "127.0.0.1:1"),
        ({"http": {"client_auth": "required", "client_ca": "a"}}, "127.0.0.1:1"),
        ({"http": {"protocol": "SSL"}}, "127.0.0.1:1"),
    ],
)
def test_security_that_cannot_be(tmp_path: Path, security: dict[str, Any], kafka: str) -> None:
    """Refused when the settings are read."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"kafka": kafka, "security": security}))
    with pytest.raises(ConfigError):
        load(str(file), {})


@promise("S1")
def test_security_of_a_listener(tmp_path: Path) -> None:
    """By its name if that is a protocol; names in the environment have lost their case."""
    environment = {
        "HEADWATER_SECURITY__LISTENERS__OUTSIDE__PROTOCOL": "SASL_PLAINTEXT",
        "HEADWATER_SECURITY__LISTENERS__OUTSIDE__MECHANISMS": "PLAIN",
        "HEADWATER_SECURITY__SUPER_USERS": "User:a;User:b",
    }
    security = load(
        None, environment, {"kafka": "OUTSIDE=127.0.0.1:1,SASL_PLAINTEXT=127.0.0.1:2,X=127.0.0.1:3"}
    ).security
    assert (security.listener("OUTSIDE").protocol, security.listener("OUTSIDE").mechanisms) == (
        "SASL_PLAINTEXT",
        "PLAIN",
    )
    assert security.listener("SASL_PLAINTEXT").protocol == "SASL_PLAINTEXT"
    assert security.listener("X").protocol == "PLAINTEXT"
    assert security.super_users == "User:a;User:b"
