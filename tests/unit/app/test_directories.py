"""Who may read what in the data directory, by the settings, also in directories that are there already."""

from pathlib import Path

import pytest

from headwater.app.directories import prepare
from headwater.errors import ConfigError
from headwater.settings.settings import Settings, StoreOptions, load
from tests.support.files import mode_of, umask_of

PROMISES = ("S3",)


def settings_of(data: Path, mode: str = "0600", **others: str) -> Settings:
    return Settings(data=str(data), object_store=StoreOptions(file_mode=mode), **others)


def loose(data: Path) -> None:
    """The directory of an earlier build, open to everybody."""
    for name in ("run", "objects/meta/v1/domain=1", "objects/wal/v1", "objects/tables/t", "objects/.tmp"):
        (data / name).mkdir(parents=True)
    for name in ("run/broker-1.json", "objects/meta/v1/domain=1/a.ckpt", "objects/wal/v1/a", "ledger.db"):
        (data / name).touch()
    for path in (data, *data.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize(("mode", "top"), [("0600", 0o700), ("0640", 0o710), ("0644", 0o711), ("0660", 0o710)])
def test_a_new_directory(tmp_path: Path, umask: int, mode: str, top: int) -> None:
    """Others may enter it only if they may read objects below it; they may never list it."""
    with umask_of(umask):
        run = prepare(settings_of(tmp_path / "above" / "data", mode), run=True)
    assert run == tmp_path / "above" / "data" / "run"
    assert mode_of(run.parent) == top
    assert mode_of(run) == 0o700


@pytest.mark.parametrize(("mode", "top", "shared"), [("0600", 0o700, 0o700), ("0640", 0o710, 0o750)])
def test_a_loose_directory_is_tightened(tmp_path: Path, mode: str, top: int, shared: int) -> None:
    """Everything that is private, and the directories above the rest."""
    data = tmp_path / "data"
    loose(data)
    prepare(settings_of(data, mode))
    assert mode_of(data) == top
    for name in ("objects", "objects/wal", "objects/tables", "objects/.tmp"):
        assert mode_of(data / name) == shared
    for name in ("run", "objects/meta", "objects/meta/v1", "objects/meta/v1/domain=1"):
        assert mode_of(data / name) == 0o700
    for name in ("run/broker-1.json", "objects/meta/v1/domain=1/a.ckpt"):
        assert mode_of(data / name) == 0o600


def test_links_are_not_followed(tmp_path: Path) -> None:
    """What they point to may belong to another program."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    loose(data)
    loose(elsewhere)
    for name in ("run", "objects/meta", "objects/wal"):
        (data / name).rename(tmp_path / name.replace("/", "-"))
        (data / name).symlink_to(elsewhere / name)
    (data / "objects" / "tables" / "link").symlink_to(elsewhere)
    prepare(settings_of(data))
    assert {mode_of(path) for path in (elsewhere, *elsewhere.rglob("*"))} == {0o777, 0o666}


@pytest.mark.parametrize("change", [lambda data: (data / "notes.txt").touch(), lambda data: data.chmod(0o1777)])
def test_a_directory_that_others_use_too(tmp_path: Path, change: object, caplog: pytest.LogCaptureFixture) -> None:
    """Its own mode stays, for example if `data` is a home directory or `/tmp`. What is in it is tightened."""
    data = tmp_path / "data"
    loose(data)
    assert callable(change)
    change(data)
    before = mode_of(data)
    prepare(settings_of(data))
    assert mode_of(data) == before
    assert mode_of(data / "run") == mode_of(data / "objects") == 0o700
    assert "left as it is" in caplog.text


def test_objects_elsewhere(tmp_path: Path) -> None:
    """The root of another directory keeps its mode, and the data directory needs no entrance."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    loose(elsewhere)
    prepare(settings_of(data, "0644", objects=(elsewhere / "objects").as_uri()))
    assert mode_of(data) == 0o700
    assert mode_of(elsewhere / "objects") == 0o777
    assert mode_of(elsewhere / "objects" / "wal") == 0o755
    assert mode_of(elsewhere / "objects" / "meta") == 0o700


def test_nothing_local(tmp_path: Path) -> None:
    """A broker with neither a ledger nor objects on this machine needs no directory."""
    prepare(settings_of(tmp_path / "data", ledger="etcd://a:1/x", objects="s3://bucket/x"))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("mode", ["0666", "0700", "600", "rw-------", "0400", ""])
def test_modes_that_cannot_work(mode: str) -> None:
    """Headwater itself writes, and not every user of the machine."""
    with pytest.raises(ConfigError, match="file_mode must be one of"):
        load(environment={"HEADWATER_OBJECT_STORE__FILE_MODE": mode})
