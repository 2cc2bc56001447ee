"""Objects are shared or copied, each as a whole, and known again by the next backup."""

import errno
import os
from pathlib import Path

import pytest

from headwater.app.backup.transfer import Transfer
from headwater.errors import ObjectMissing, StoreFull, StoreUnavailable
from tests.support.files import mode_of, umask_of

WAL, CHECKPOINT = "wal/v1/zone=/domain=1/date=2026/01/01/1-1.wo", "meta/v1/domain=1/checkpoint/1.ckpt"


def store(root: Path, path: str, data: bytes = b"bytes") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o600)
    return file


def transfer(tmp_path: Path, mode: int = 0o600, *, links: bool = True) -> Transfer:
    (tmp_path / "copy" / "scratch").mkdir(parents=True, exist_ok=True)
    return Transfer(
        tmp_path / "source", tmp_path / "copy" / "objects", tmp_path / "copy" / "scratch", mode, links=links
    )


def test_a_link(tmp_path: Path) -> None:
    source = store(tmp_path / "source", WAL)
    moved = transfer(tmp_path)
    assert moved.bring(WAL) == 5
    assert (tmp_path / "copy" / "objects" / WAL).samefile(source)
    assert transfer(tmp_path).bring(WAL) == 5
    assert (moved.counts.linked, moved.counts.copied, moved.counts.kept) == (1, 0, 0)


@pytest.mark.parametrize("links", [True, False])
def test_a_copy(tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is asked for, and on another file system. It has the time of the original, by which it is known again."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refused)
    source = store(tmp_path / "source", WAL)
    first, second = transfer(tmp_path, links=links), transfer(tmp_path, links=links)
    first.bring(WAL)
    copy = tmp_path / "copy" / "objects" / WAL
    assert not copy.samefile(source)
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == (b"bytes", source.stat().st_mtime_ns)
    assert (first.counts.copied, first.counts.copied_bytes) == (1, 5)
    second.bring(WAL)
    assert (second.counts.copied, second.counts.kept) == (0, 1)


@pytest.mark.parametrize("links", [True, False])
def test_another_object_of_the_same_name(tmp_path: Path, links: bool) -> None:
    """A cluster that was restored uses names again that a later backup of it had."""
    source = store(tmp_path / "source", WAL)
    transfer(tmp_path, links=links).bring(WAL)
    source.unlink()
    source.write_bytes(b"other")
    os.utime(source, ns=(1, 1))
    again = transfer(tmp_path, links=links)
    assert not again.has(WAL)
    again.bring(WAL)
    assert again.has(WAL)
    assert (tmp_path / "copy" / "objects" / WAL).read_bytes() == b"other"


@pytest.mark.parametrize(("mode", "shared"), [(0o600, 0o700), (0o640, 0o750)])
def test_modes(tmp_path: Path, mode: int, shared: int) -> None:
    """Checkpoints have users' keys, so they are private. The rest has the mode of the settings, whatever the umask."""
    moved = transfer(tmp_path, mode, links=False)
    for path in (WAL, CHECKPOINT):
        store(tmp_path / "source", path)
    with umask_of(0):
        for path in (WAL, CHECKPOINT):
            moved.bring(path)
        moved.put("tables/t/_iceberg/1.json", b"{}")
    root = tmp_path / "copy" / "objects"
    assert (mode_of(root / WAL), mode_of((root / WAL).parent), mode_of(root / "wal")) == (mode, shared, shared)
    assert (mode_of(root / CHECKPOINT), mode_of((root / CHECKPOINT).parent)) == (0o600, 0o700)
    assert mode_of(root / "meta") == 0o700
    assert mode_of(root / "tables/t/_iceberg/1.json") == mode


def test_what_is_missing(tmp_path: Path) -> None:
    moved = transfer(tmp_path)
    with pytest.raises(ObjectMissing, match="no object wal/"):
        moved.bring(WAL)
    assert moved.size(WAL) is None
    store(tmp_path / "source", WAL)
    (tmp_path / "copy" / "scratch").rmdir()
    with pytest.raises(StoreUnavailable, match="directory of the backup was removed"):
        moved.bring(WAL)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is not there, and nothing of it is left over."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    store(tmp_path / "source", WAL)
    moved = transfer(tmp_path, links=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="run the backup again"):
            moved.bring(WAL)
    assert moved.size(WAL) is None
    assert not list((tmp_path / "copy" / "scratch").iterdir())
    assert moved.bring(WAL) == 5


def test_removing(tmp_path: Path) -> None:
    """Files that a store has under way are not objects."""
    moved = transfer(tmp_path)
    for path in (WAL, CHECKPOINT):
        store(tmp_path / "source", path)
        moved.bring(path)
    scratch = store(tmp_path / "copy" / "objects", ".tmp/1/2")
    moved.sync()
    moved.keep_only({CHECKPOINT})
    assert (moved.size(WAL), moved.size(CHECKPOINT), moved.counts.removed) == (None, 5, 1)
    assert scratch.exists() and (tmp_path / "source" / WAL).exists()
