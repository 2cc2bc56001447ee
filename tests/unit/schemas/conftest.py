"""Protobuf schemas are compiled in the process of the tests."""

import pytest

from tests.support.protobuf import compile_in_process


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)
