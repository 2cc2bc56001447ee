"""Compiled code that is kept on the disk and is older than the columns it is given."""

import pytest

from headwater import native
from headwater.native import rows
from tests.support.promise import promise

PROMISES = ("M7",)


@promise("M7")
def test_code_of_another_time_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take one address for another."""
    native.load()
    assert native.serve is not None
    monkeypatch.setattr(native, "serve", None)
    monkeypatch.setattr(rows, "LAYOUT", rows.LAYOUT + 1)
    native.load()
    assert native.serve is None
