"""Protobuf schemas are compiled, and JSON Schemas judged, in the process of the tests."""

from typing import Any

import pytest

from headwater.schemas.jsonschema import judge, judging
from tests.support.protobuf import compile_in_process


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)
    kept: dict[str, Any] = {}
    monkeypatch.setattr(judging, "ask", lambda *question: judge.answer(list(question), kept))
