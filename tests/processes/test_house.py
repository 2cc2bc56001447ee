"""`make house` measures every count of the planned layout, and no count grows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house_script", ROOT / "scripts" / "house.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module


HOUSE = load()
TREE = HOUSE.Tree()


@pytest.mark.parametrize("count", HOUSE.COUNTS, ids=lambda count: count.measure.__name__)
def test_a_count_does_not_grow(count: HOUSE.Count) -> None:
    """A change that lowers a count lowers its limit in `scripts/house.py` too."""
    found = count.measure(TREE)
    assert isinstance(found, int)
    assert found >= 0
    if count.most is not None:
        assert found <= count.most, f"{count.what}: {found}, and it was {count.most}"


def test_the_table_has_every_count(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOUSE, "Tree", lambda: TREE)
    HOUSE.main()
    head, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["count", "now", "wanted"]
    assert [row.rsplit(maxsplit=2)[0] for row in rows] == [count.what for count in HOUSE.COUNTS]
    assert all(number.replace(",", "").isdigit() for row in rows for number in row.split()[-2:])


def tree(tmp_path: Path, files: dict[str, str]) -> HOUSE.Tree:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HOUSE.Tree(tmp_path)


def test_counts_find_what_they_count(tmp_path: Path) -> None:
    """On a small tree, where each count is known."""
    found = tree(
        tmp_path,
        {
            "src/headwater/__init__.py": "from headwater.cli.a import x\n",
            "src/headwater/cli/__init__.py": "",
            "src/headwater/cli/a.py": "from headwater.app.session import ledger_session\n"
            "from headwater.cli.b import y\nLINKS_LEVEL: int = 5\nx = cluster.submit([AclResource])\n",
            "src/headwater/cli/b.py": "from headwater.state.commands.tables import Settle\n"
            "import headwater.lake.tables.delta.names\ny = thread._thread.submit(Settle)\n",
            "src/headwater/lake/tables/names.py": "NAME = 'delta'\n",
            "src/headwater/state/commands/tables.py": "class Settle(Command, frozen=True): ...\n"
            "class WantSettled(Command): ...\n",
            "src/headwater/replica/topics.py": 'text = "not carried out: run `headwater cluster upgrade`"\n' * 2,
            "src/headwater/kernels/fast.py": "\n" * 900,
            "tests/formats/level-1.tar.xz": "",
            "tests/simulation/deep/scene.py": "replica.submit([])\nreplica.enqueue([])\n",
            "pyproject.toml": "[project]\ndependencies = ['msgspec']\n",
        },
    )
    ours = {count.measure.__name__: count.measure for count in HOUSE.COUNTS}
    wanted = {
        "importing_commands": 1,
        "submitting": 1,
        "naming_acl_resources": 1,
        "texts_not_carried_out": 2,
        "texts_cluster_upgrade": 2,
        "levels": 1,
        "swap_commands": 1,
        "fixtures": 1,
        "opening_ledgers": 1,
        "dependencies": 1,
        "naming_table_formats": 1,
        "state_modules": 1,
        "small_modules": 1,
        "simulation_lines": 2,
        "simulation_submits": 2,
        "source_lines": 13,
        "source_modules": 7,
        "biggest_room": 54,
    }
    assert {name: ours[name](found) for name in wanted} == wanted
