"""Compiled code that is kept on the disk and is older than the columns it is given (M7)."""

import pytest

from headwater import native
from headwater.native import rows


def test_code_of_another_time_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """M7: it would take one address for another."""
    native.load()
    assert native.serve is not None
    monkeypatch.setattr(native, "serve", None)
    monkeypatch.setattr(rows, "LAYOUT", rows.LAYOUT + 1)
    native.load()
    assert native.serve is None
