"""What is left to the soak: samples have every kind in them, and the soak has everything."""

import importlib
import re
from pathlib import Path

import pytest

from tests.soak.sql_load import Known
from tests.support import soak

ROOT = Path(__file__).parents[2]
KINDS = ["a", "b", "a", "a", "c", "a", "a"]


def test_a_sample_has_the_first_the_middle_and_the_last_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "WHOLE", False)
    assert soak.first_middle_last(KINDS) == [0, 1, 3, 4, 6]
    assert soak.first_middle_last([]) == []
    assert [soak.examples(count) for count in (1, 3, 100)] == [1, 1, 34]


def test_the_soak_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "WHOLE", True)
    assert soak.first_middle_last(KINDS) == list(range(len(KINDS)))
    assert soak.examples(100) == 100


def test_make_soak_runs_every_module_that_samples() -> None:
    """A module that samples runs whole in `make soak`."""
    sampling = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^from tests\.support\.soak import", path.read_text(), re.MULTILINE)
    }
    recipe = (ROOT / "Makefile").read_text().partition("\nsoak:")[2].partition("\n\n")[0]
    [whole] = re.findall(rf"{soak.VARIABLE}=1 (.*)", recipe.replace("\\\n", " "))
    assert sampling and sampling == set(re.findall(r"tests/\S+\.py", whole))


@pytest.mark.parametrize("path", sorted((ROOT / "tests/soak").glob("*.py")), ids=lambda path: path.stem)
def test_the_modules_of_the_soak_can_be_imported(path: Path) -> None:
    """Nothing else imports them, so a module that was moved would only be missed after an hour of `make soak`."""
    importlib.import_module(f"tests.soak.{path.stem}")


def test_what_writers_know_of_a_partition() -> None:
    """The soak of SQL compares answers with this: ranges in any order, and transactions as a whole."""
    known = Known()
    for first, last in ((0, 0), (1, 3), (10, 11), (4, 6)):
        known.note(first, last)
    assert known.between(0, 11) == (9, 0 + 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11)
    assert known.between(2, 10) == (6, 2 + 3 + 4 + 5 + 6 + 10) and known.between(7, 9) == (0, 0)
    assert known.floor == 12
    known.held = 7
    assert known.floor == 7
    whole = Known(whole=True)
    whole.note(0, 2)
    whole.note(4, 6)
    assert whole.between(0, 6) == (6, 18) and whole.between(0, 5) == (3, 3) and whole.between(0, 2) == (3, 3)
