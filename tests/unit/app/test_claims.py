"""A data directory has one owner, and a node one broker."""

from pathlib import Path

import pytest

from headwater.app.claims import claimed, this_process
from headwater.errors import ConfigError
from tests.support.files import mode_of

PROMISES = ("O8",)


def test_who_shares_a_directory(tmp_path: Path) -> None:
    data = str(tmp_path / "above" / "data")
    first, other = this_process("up", "h:1", "h:2", "h:3"), this_process("broker", "h:4", "h:5")
    with claimed(data, first, [1, 2], whole=True) as claims:
        with pytest.raises(ConfigError, match=r"`headwater up`, process \d+ on \S+ \(kafka h:1, http h:2, gate"):
            claimed(data, other, [7], whole=True).__enter__()
        claims.say(this_process("up", "h:91", "h:92"))
        with pytest.raises(ConfigError, match=r"node 2 of .* `headwater up`.*kafka h:91, http h:92\): .*--node"):
            claimed(data, other, [2], whole=False).__enter__()
        with claimed(data, other, [3], whole=False), pytest.raises(ConfigError, match=r"node 3 of .* broker`"):
            claimed(data, first, [3], whole=False).__enter__()
    with claimed(data, other, [2], whole=True):
        assert {mode_of(path) for path in Path(data).rglob("*.lock")} == {0o600}


def test_a_refusal_leaves_nothing_locked(tmp_path: Path) -> None:
    data, own = str(tmp_path / "data"), this_process("broker", "h:1", "h:2")
    with claimed(data, own, [2], whole=False):
        with pytest.raises(ConfigError):
            claimed(data, own, [1, 2], whole=True).__enter__()
        with claimed(data, own, [1], whole=True):
            pass


def test_a_file_that_says_nothing(tmp_path: Path) -> None:
    """The lock alone counts."""
    data, own = str(tmp_path / "data"), this_process("up", "h:1", "h:2")
    with claimed(data, own, [], whole=True):
        (tmp_path / "data" / "run" / "up.lock").write_text("")
        with pytest.raises(ConfigError, match="in use by another process"):
            claimed(data, own, [], whole=True).__enter__()
    with claimed(data, own, [], whole=True):
        pass
