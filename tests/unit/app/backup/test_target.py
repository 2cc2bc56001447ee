"""Which directories a backup writes to, and what their receipts say to others. Bad ones stay as they were."""

from pathlib import Path

import pytest

from headwater.app.backup.placing import check_whole, locked, take_over
from headwater.app.backup.receipt import FOLDER, Receipt, folder_of, read_receipt, write_receipt
from headwater.app.backup.target import Source, Target
from headwater.errors import ConfigError
from headwater.settings.settings import Settings
from tests.support.files import mode_of, umask_of


def source(tmp_path: Path, **others: str) -> Source:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    (data / "ledger.db").touch()
    return Source(Settings(data=str(data), **others))


def test_only_embedded_clusters(tmp_path: Path) -> None:
    for others in ({"ledger": "etcd://a:1/x"}, {"objects": "s3://bucket/x"}):
        with pytest.raises(ConfigError, match=r"docs/guides/backup\.md"):
            source(tmp_path, **others)
    with pytest.raises(ConfigError, match="no cluster here"):
        Source(Settings(data=str(tmp_path / "nothing")))
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("place", ["data", "data/copy", "data/objects/copy", ".", "data/../data/copy"])
def test_a_target_inside_the_cluster(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="overlap"):
        Target(tmp_path / place, source(tmp_path))


def test_targets_that_are_refused(tmp_path: Path) -> None:
    own = source(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").touch()
    for name, said in (("file", "not a directory"), ("foreign", "neither empty"), ("not mounted/copy", "mount")):
        with pytest.raises(ConfigError, match=said), Target(tmp_path / name, own).claimed():
            pass
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "not mounted").exists()


def test_a_new_target(tmp_path: Path) -> None:
    """It is private, and refused by all who would use it, while the backup runs and after it was interrupted."""
    target = Target(tmp_path / "copy", source(tmp_path))
    with umask_of(0), target.claimed() as receipt:
        assert not receipt.complete
        with pytest.raises(ConfigError, match="is under way"):
            take_over(target.data)
        with pytest.raises(ConfigError, match="is under way"), target.claimed():
            pass
    assert mode_of(target.data) == mode_of(folder_of(target.data)) == 0o700
    for look in (check_whole, take_over):
        with pytest.raises(ConfigError, match="interrupted and is not whole"):
            look(target.data)
    with target.claimed() as receipt:
        write_receipt(target.data, Receipt(place=receipt.place, complete=True))
    check_whole(target.data)
    assert folder_of(target.data).is_dir()
    take_over(target.data)
    assert not folder_of(target.data).exists()


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    folder_of(tmp_path).mkdir()
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        assert (tmp_path / FOLDER / "lock").exists()


def test_directories_without_a_backup(tmp_path: Path) -> None:
    """Nothing is created in them."""
    check_whole(tmp_path)
    take_over(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"format": 2, "place": "x"}', "format 2"), ("{", "cannot read"), ('{"more": 1}', "cannot read")],
)
def test_receipts_of_others(tmp_path: Path, text: str, said: str) -> None:
    """A receipt that this build does not know is not a reason to go on."""
    folder_of(tmp_path).mkdir()
    (folder_of(tmp_path) / "receipt.json").write_text(text)
    for look in (read_receipt, check_whole, take_over):
        with pytest.raises(ConfigError, match=said):
            look(tmp_path)
