"""When compiled loops replace plain ones."""

import threading

import pytest

from headwater.log.kernels import switch
from headwater.log.kernels.records import OK
from tests.support.batches import Rec, record
from tests.support.promise import promise

PROMISES = ("K3",)


@promise("K3")
def test_compiled_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle broker never pays for the compiler; a busy one calls it once, in the background."""
    called = threading.Event()
    calls = []

    def compile_kernels() -> None:
        calls.append(threading.current_thread().name)
        called.set()

    monkeypatch.setattr(switch, "compile_kernels", compile_kernels)
    monkeypatch.setattr(switch, "walk_records", switch.walk_records)
    switch.compile_when_used(lambda: calls.append("prepared"))
    data = b"".join(record(i, Rec(b"x"), 0) for i in range(10))
    for _ in range(switch.COMPILE_AFTER // 10 - 1):
        assert switch.walk_records(data, 0, len(data), 10)[0] == OK
    assert not calls
    for _ in range(50):
        switch.walk_records(data, 0, len(data), 10)
    assert called.wait(20)
    assert calls == ["prepared", "compile"]
