"""The benchmarks and the soak of typed tables: their records, what readers must find, and the tables of figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import settle_typed, typed
from benchmarks.settle_measure import WORKERS, Sample
from benchmarks.settle_ours import SUBJECT
from benchmarks.settle_typed import BEFORE, SINK, UNTYPED, TypedPlan
from benchmarks.typed_inputs import AVRO, ORDERS, TYPED_CASES, TypedCase, event, make_typed, sum_of_ids
from benchmarks.typed_rows import events
from tests.soak.backfill_rows import PARTITIONS, Found, Rows, Wanted, statement, value_of

LEAVES = 20


@pytest.mark.parametrize("case", [case for case in TYPED_CASES if case.kind != "PROTOBUF"], ids=lambda case: case.name)
def test_records_have_the_size_of_their_case(case: TypedCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value has exactly so many bytes, or making them fails."""
    monkeypatch.setattr("benchmarks.typed_inputs.DISTINCT", 2_000)
    data = make_typed(case, 5_000, 7 if case.kind else 0)
    assert data.rows == sum(batch.offsets for batches in data.objects for batch in batches) == 5_000


def test_ids_come_again() -> None:
    assert sum_of_ids(3) == 0 + 1 + 2
    assert sum_of_ids(200_002) == 199_999 * 200_000 // 2 + 0 + 1
    assert event(5) == event(5) and event(5) != event(6)


def sample(subject: str, case: str, cpu: float) -> Sample:
    return Sample(
        subject=subject, master="local[1]", case=case, streams=1, rows=600_000, value_bytes=100, files=1,
        file_bytes=1, cpu=cpu, wall=1.0, cpu_of={WORKERS: cpu / 2},
    )  # fmt: skip


def test_figures_are_compared_with_aims_and_rivals() -> None:
    """Aims are records a second of CPU; before typed tables and the sink are beside the same records."""
    [avro] = [case.name for case in TYPED_CASES if case.kind == AVRO]
    samples = [sample(SUBJECT, avro, 1.2), sample(SUBJECT, UNTYPED.name, 1.1), sample(BEFORE, UNTYPED.name, 1.0),
               sample(SUBJECT, ORDERS.name, 1.0), sample(SINK, ORDERS.name, 2.0)]  # fmt: skip
    table = settle_typed.rows(samples)
    assert [row[:2] for row in table] == [
        [SUBJECT, UNTYPED.name], [BEFORE, UNTYPED.name], [SUBJECT, avro], [SUBJECT, ORDERS.name], [SINK, ORDERS.name],
    ]  # fmt: skip
    assert [row[6] for row in table] == ["0.91", "–", "–", "2.00", "–"]
    assert table[2][3:5] == ["500", "1000"]
    missed = settle_typed.short_of(samples)
    assert len(missed) == 2 and missed[0].startswith(avro) and BEFORE in missed[1]
    assert not settle_typed.short_of([sample(SUBJECT, avro, 1.0)])
    plan = TypedPlan(master="local[1]", rows=1, repeats=3, before=Path("x"), sink_megabytes=1)
    assert plan.steps() == 3 * (len(TYPED_CASES) + 3) + 3 and "the sink 1 MB" in plan.size()


def leaves(value: Any) -> int:
    return sum(map(leaves, value.values())) if isinstance(value, dict) else 1


def test_events_are_realistic() -> None:
    """Nested JSON of 300 to 600 bytes with at least twenty fields."""
    for text in events(0, 50):
        assert 300 <= len(text) <= 600
        assert leaves(json.loads(text)) >= LEAVES
    assert list(events(7, 2)) == list(events(0, 9))[7:]


def test_ways_that_answer_the_same_are_compared() -> None:
    ways = {"one": lambda typed: [("a", 1)], "two": lambda typed: [["a", 1]]}
    found = typed.compare(typed.STATEMENTS[0], ways, 2)  # type: ignore[arg-type]
    assert [(one.way, len(one.bytes), len(one.typed)) for one in found] == [("one", 2, 2), ("two", 2, 2)]
    with pytest.raises(typed.BenchError, match="instead of"):
        typed.compare(typed.STATEMENTS[0], {"one": lambda typed: [("a", int(typed))]}, 1)
    through = typed.STATEMENTS[1].through(typed=True)
    assert "value_data.geo.country" in through and "FROM events" in through
    trino = typed.STATEMENTS[1].trino(typed=False)
    assert "json_extract_scalar(from_utf8(value), '$.cart.amount')" in trino and "FROM lake.topics.events" in trino


def test_what_readers_of_the_back_fill_must_find(tmp_path: Path) -> None:
    rows = Rows(30_000)
    files = list(rows.files(0, tmp_path / "input"))
    wanted = rows.wanted(0, files)
    values = [value_of(number, rows.rows) for number in range(rows.share)]
    told = [json.loads(value) for value in values if value is not None and value.startswith(b"{")]
    assert (wanted.rows, wanted.present, wanted.bad) == (10_000, 10_000 - values.count(None), 1)
    assert wanted.old == sum("old" in one for one in told) > 0
    assert len(told) == wanted.present - wanted.bad and rows.rows == PARTITIONS * rows.share
    whole = Found(0, 10_000, wanted.offsets, wanted.keys, wanted.values, wanted.present, len(told), 1, 0, 0, wanted.old)
    assert whole.same_log(wanted) and whole.decoded(wanted)
    assert not Found(0, 10_000, wanted.offsets, wanted.keys, wanted.values + 1, wanted.present).same_log(wanted)
    assert not Found(0, 10_000, wanted.offsets, wanted.keys, wanted.values, wanted.present).decoded(wanted)
    assert isinstance(wanted, Wanted) and "old" not in statement("t", "key", 2)
