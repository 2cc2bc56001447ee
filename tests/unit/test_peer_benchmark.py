"""The benchmark beside Kafka: a fair order, time limits, results that survive a stop, parts of the CPU, its tables."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import psutil
import pytest
from rich.console import Console

from benchmarks import peer, peer_report, report, transactions
from benchmarks.plan import HOUR_SECONDS, KAFKA, LAKE, LOG, QUICK, Kind, Plan, Step, order
from benchmarks.results import IDLE, LOADED, THROUGHPUT, Results, Sample, Store
from benchmarks.systems import (
    BROKER,
    COMPACTOR,
    GATEWAY,
    SUPERVISOR,
    BenchError,
    HeadwaterSystem,
    cpu_of,
    differing,
    parts_of,
)
from benchmarks.turns import CPU, FOREIGN, IDLING, STOLEN, Deadline, Use
from headwater.app.up.portions import broker_settings
from headwater.settings.settings import Lake, Settings, load

FACTS = report.Facts(
    date="2026-01-01", cpu="cpu", cores=2, memory_gb=8, kernel="Linux", filesystem="ext4", python="3.11", java="17",
    kafka="4", librdkafka="2", commit="abc", load_average=0.5,
)  # fmt: skip


def sample(system: str, case: str, turn: int, metric: str = THROUGHPUT, value: float = 1.0) -> Sample:
    return Sample(system=system, case=case, turn=turn, metric=metric, unit="MB/s", value=value)


def complete(plan: Plan) -> Results:
    """Results with one value in every turn of every step."""
    results = Results(plan=plan, facts=FACTS, starts=1)
    for group in plan.groups():
        for step in group.steps:
            for turn in range(step.turns):
                results.samples += [sample(system, step.label, turn) for system in step.systems]
    results.samples += [sample(system, LOADED, 0) for system in plan.systems]
    return results


# --- the plan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("systems", [(KAFKA, LOG), (KAFKA, LOG, LAKE)])
def test_each_system_goes_first_equally_often(systems: tuple[str, ...]) -> None:
    plan = Plan(systems=systems)
    for step in (step for group in plan.groups() for step in group.steps):
        orders = [order(step.systems, turn) for turn in range(step.turns)]
        assert all(sorted(names) == sorted(step.systems) for names in orders)
        assert set(Counter(names[0] for names in orders).values()) == {step.turns // len(step.systems)}
        if len(step.systems) == 3:
            assert len({tuple(names) for names in orders}) == 6


def test_all_steps_together_have_an_hour_at_most() -> None:
    assert Plan().limit_seconds <= HOUR_SECONDS
    assert QUICK.limit_seconds <= HOUR_SECONDS
    for step in (step for group in Plan().groups() for step in group.steps):
        assert step.limit_seconds > step.expected_seconds > step.turns * len(step.systems) * step.counted_seconds


def test_the_matrix_is_full_at_one_shape_and_varies_one_thing_at_a_time() -> None:
    full, *variations = Plan().groups()
    assert (full.label, full.systems) == ("1 KB × 12", (KAFKA, LOG, LAKE))
    assert [step.kind for step in full.steps] == [Kind.PRODUCE, Kind.TAIL, Kind.CATCH_UP, Kind.LATENCY]
    assert [group.label for group in variations] == ["1 KB × 1", "1 KB × 4", "1 KB × 100", "100 B × 12", "1 KB × 12"]
    assert variations[-1].steps[0].kind is Kind.RDKAFKA_PRODUCE
    labels = [step.label for group in Plan().groups() for step in group.steps]
    assert len(labels) == len(set(labels))


def test_a_quick_run_has_every_step_of_a_full_one() -> None:
    def steps(plan: Plan) -> list[str]:
        return [step.label for group in plan.groups() for step in group.steps]

    assert steps(QUICK) == steps(Plan())


def test_transactions_are_measured_by_a_run_of_their_own() -> None:
    assert Kind.TRANSACTIONS not in {step.kind for group in Plan().groups() for step in group.steps}
    (group,) = Plan(only=(Kind.TRANSACTIONS,)).groups()
    assert group.fills_itself and group.systems == (KAFKA, LOG)
    produce, read = group.steps
    assert (produce.kind, read.kind) == (Kind.TRANSACTIONS, Kind.ISOLATION)
    for step in group.steps:
        titles = {way.title for way in step.ways}
        assert all(way.base in titles for way in step.ways if way.base)
        assert len(set(step.cases)) == len(step.ways)
        assert step.limit_seconds > step.turns * len(step.systems) * len(step.ways) * step.counted_seconds
        firsts = Counter(order(step.ways, turn)[0] for turn in range(len(step.ways)))
        assert set(firsts) == {*step.ways}


def test_ways_of_a_turn_are_kept_apart_and_counted_together() -> None:
    plan = Plan(only=(Kind.TRANSACTIONS,))
    step = plan.groups()[0].steps[0]
    results = Results(plan=plan, facts=FACTS)
    for turn, slow in enumerate((0.9, 0.6, 0.7)):
        for system in step.systems:
            for way in step.ways:
                rate = 100 * slow if way.word == "100" else 100.0
                results.samples += [sample(system, step.case(way), turn, THROUGHPUT, rate)]
                results.samples += [sample(system, step.case(way), turn, CPU, 1 / rate)]
    assert results.turns_done(step) == 3
    results.samples = [s for s in results.samples if (s.system, s.turn) != (LOG, 2)]
    assert results.begin(step) == 2
    assert {s.turn for s in results.samples} == {0, 1}
    (row,) = [row for row in peer_report.ways(results).rows if "100 ms" in row[0]]
    assert row[:5] == ["produce 100 ms transactions 1 KB × 12", "produce plain", "0.80", "0.75 (0.60..0.90)", row[4]]
    assert row[4] == "1.39 (1.11..1.67)"
    assert "0.80" not in peer_report.ways(complete(Plan())).columns and not peer_report.ways(complete(Plan())).rows


def test_a_step_is_given_up_at_its_limit() -> None:
    now = 0.0
    deadline = Deadline(10, "produce", lambda: now)
    deadline.check()
    deadline.check(9)
    now = 10.0
    with pytest.raises(BenchError, match="produce was given up at its limit of 10 s"):
        deadline.check()


# --- results ----------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_with_the_first_turn_that_is_not_whole(tmp_path: Path) -> None:
    plan, store = Plan(), Store(tmp_path)
    results = store.begin(plan, FACTS)
    first, second = plan.groups()[0].steps[:2]
    results.samples += [sample(system, first.label, turn) for turn in range(first.turns) for system in first.systems]
    results.samples += [sample(system, second.label, 0) for system in second.systems]
    results.samples.append(sample(KAFKA, second.label, 1))
    store.save(results)

    resumed = store.resume(plan, replace_facts(date="2026-01-02", load_average=3.0))
    assert resumed.turns_done(first) == first.turns
    assert resumed.steps_left(plan.groups()[0].steps)[0] == second
    assert resumed.begin(second) == 1
    assert len(resumed.values(KAFKA, second.label, THROUGHPUT)) == 1
    assert len(resumed.values(KAFKA, first.label, THROUGHPUT)) == first.turns
    assert not resumed.complete


def replace_facts(**changed: Any) -> report.Facts:
    return msgspec.structs.replace(FACTS, **changed)


def test_only_the_same_run_is_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(BenchError, match="no run to resume"):
        store.resume(Plan(), FACTS)
    store.save(store.begin(Plan(), FACTS))
    with pytest.raises(BenchError, match="turns was 6, is 9"):
        store.resume(Plan(turns=9), FACTS)
    with pytest.raises(BenchError, match="commit was abc, is def"):
        store.resume(Plan(), replace_facts(commit="def"))
    store.path.write_text("{")
    with pytest.raises(BenchError, match="cannot be read"):
        store.resume(Plan(), FACTS)


def test_a_new_run_keeps_the_results_of_the_last_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = complete(Plan())
    store.save(old)
    assert not store.begin(Plan(), FACTS).samples
    (kept,) = tmp_path.glob("results-*.json")
    assert msgspec.json.decode(kept.read_bytes(), type=Results) == old


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    with Store(tmp_path).locked(), pytest.raises(BenchError, match="another run uses"), Store(tmp_path).locked():
        pass
    with Store(tmp_path).locked():
        pass


def test_results_are_complete_with_all_turns_and_the_memory_after_them() -> None:
    results = complete(Plan())
    assert results.complete
    for missing in (results.samples[0], results.samples[-1]):
        some = complete(Plan())
        some.samples.remove(missing)
        assert not some.complete


class FakeSystem:
    """A server that is there and does nothing."""

    startup_seconds = 1.0

    def __init__(self, directory: Path) -> None:
        pass

    def __enter__(self) -> "FakeSystem":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass

    def cpu_parts(self) -> dict[str, float]:
        return {BROKER: 1.0}

    def memory(self) -> list[Any]:
        return []


class FakeBench:
    """A bench whose turns have a sample of each system. It is stopped, or fails, in the turn that a test names."""

    trouble: ClassVar[dict[tuple[str, int], BaseException]] = {}
    turns: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> "FakeBench":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def warm_up(self, **_: object) -> None:
        pass

    def read_once(self) -> None:
        pass

    def run(self, step: Step, first: int, limit: float, collect: Callable[[list[Sample]], None]) -> None:
        assert limit <= step.limit_seconds
        for turn in range(first, step.turns):
            if error := self.trouble.pop((step.label, turn), None):
                raise error
            self.turns.append((step.label, turn))
            collect([sample(system, step.label, turn) for system in step.systems])


def test_a_run_that_is_stopped_or_fails_is_resumed_without_measuring_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store, console = msgspec.structs.replace(QUICK, idle_seconds=0.0), Store(tmp_path), Console(quiet=True)
    monkeypatch.setattr(peer, "SYSTEMS", dict.fromkeys(plan.systems, FakeSystem))
    monkeypatch.setattr(peer, "Bench", FakeBench)
    steps = [step for group in plan.groups() for step in group.steps]
    monkeypatch.setattr(FakeBench, "turns", [])
    trouble = {(steps[1].label, 2): BenchError("the client ended"), (steps[4].label, 1): KeyboardInterrupt()}
    monkeypatch.setattr(FakeBench, "trouble", trouble)

    with pytest.raises(KeyboardInterrupt):
        peer.Run(store.begin(plan, FACTS), store, tmp_path, console).run()
    (failure,) = store.read().failures
    assert (failure.case, failure.reason) == (steps[1].label, "the client ended")
    left = store.read().steps_left(steps)
    assert [left[0], left[1]] == [steps[1], steps[4]] and len(left) == len(steps) - 3

    results = store.resume(plan, FACTS)
    peer.Run(results, store, tmp_path, console).run()
    assert results.complete and not results.failures and results.starts == 2
    assert store.read() == results
    assert sorted(FakeBench.turns) == sorted((step.label, turn) for step in steps for turn in range(step.turns))


# --- the machine ------------------------------------------------------------------------------------------


@dataclass
class FakeProcess:
    """A process of a tree, with its own CPU seconds and those of children that exited."""

    words: list[str] = field(default_factory=list)
    own: float = 0.0
    exited: float = 0.0

    def cmdline(self) -> list[str]:
        if not self.words:
            raise psutil.NoSuchProcess(1)
        return self.words

    def cpu_times(self) -> Any:
        return SimpleNamespace(user=self.own, system=0.0, children_user=self.exited, children_system=0.0)


def test_the_parts_of_headwater_are_told_by_their_commands() -> None:
    broker = FakeProcess(["python", "-m", "headwater", "broker", "--config", "/x/compactor/broker-1.json"])
    compactor = FakeProcess(["python", "-m", "headwater", "compactor", "--config", "/x/compactor.json"])
    gateway = FakeProcess(["python", "-m", "headwater", "gateway", "--config", "/x/gateway.json", "--supervised"])
    children: Sequence[Any] = [compactor, FakeProcess(), broker, gateway]
    assert parts_of(children) == {BROKER: broker, COMPACTOR: compactor, GATEWAY: gateway}


def test_cpu_counts_children_that_exited() -> None:
    processes: Sequence[Any] = [FakeProcess(own=2, exited=1), FakeProcess(own=0.5)]
    assert cpu_of(processes) == 3.5


def test_what_others_use_of_the_machine_is_told_apart() -> None:
    before = Use(at=0, busy=0, stolen=0, server=0, idling=0, ours=0)
    after = Use(at=10, busy=14, stolen=1, server=6, idling=2, ours=4)
    assert after.shares_since(before, cores=2) == [(STOLEN, "%", 5.0), (FOREIGN, "%", 5.0), (IDLING, "%", 10.0)]


def test_settling_is_measured_with_the_default_settings_of_headwater_up(tmp_path: Path) -> None:
    headwater = HeadwaterSystem(tmp_path / "data").server
    headwater.prepare()
    assert headwater.options[0] == "--lake"
    others = [option for option in headwater.options[1:] if option != "--gateway"]
    given = {
        name.replace("gateway-http", "gateway.http"): value
        for name, value in zip(others[::2], others[1::2], strict=True)
    }
    flags = {"lake.enabled": True, **{name.removeprefix("--"): value for name, value in given.items()}}
    settings = load(str(headwater.config), {}, {**flags, "brokers": int(given["--brokers"])})
    assert differing(broker_settings(settings)[0], lake=True) == []
    assert settings.lake == Lake()


def test_other_settings_are_found() -> None:
    changed = broker_settings(Settings(data="/x", kafka="127.0.0.1:1", lake=Lake(interval_ms=1)))[0]
    (found,) = differing(changed, lake=True)
    assert found.startswith("lake is") and "'interval_ms': 1" in found
    assert differing(broker_settings(Settings())[0], lake=False)


# --- transactions -----------------------------------------------------------------------------------------


def look(
    count: float = 0, commits: float = 0, size: float = 0, entries: float = 0, settled: float = 0
) -> transactions.Look:
    return transactions.Look(transactions=count, commits=commits, size=size, entries=entries, settled=settled)


def test_what_a_transaction_costs_is_divided_by_those_that_ended() -> None:
    assert transactions.per_transaction(look(10, 100, 1_000), look(20, 120, 5_000)) == (2.0, 400.0)
    assert transactions.per_transaction(look(10, 100, 1_000), look(10, 101, 1_050)) == (1.0, 50.0)


def test_the_index_is_compared_only_if_something_was_settled() -> None:
    looks = [look(entries=n, settled=n > 900) for n in (0, 900, 1_000, 90, 1_100, 80)]
    assert transactions.halves(looks) == (1_000, 1_100)
    assert transactions.halves([look(entries=n) for n in (0, 100, 200, 300)]) is None
    assert transactions.halves([look()]) is None


# --- the tables -------------------------------------------------------------------------------------------


def published() -> Results:
    results = complete(Plan())
    case = "produce 1 KB × 12"
    results.samples = [s for s in results.samples if s.case != case]
    for system, rate, parts in (
        (KAFKA, 100.0, {BROKER: 4.0}),
        (LOG, 110.0, {BROKER: 3.0, SUPERVISOR: 0.1}),
        (LAKE, 88.0, {BROKER: 3.0, COMPACTOR: 8.0, GATEWAY: 0.2, SUPERVISOR: 0.1}),
    ):
        for turn in range(6):
            values = {THROUGHPUT: rate, CPU: sum(parts.values()), STOLEN: 1.0, FOREIGN: 2.0, IDLING: 3.0}
            values |= {f"{CPU} {part}": seconds for part, seconds in parts.items()}
            results.samples += [sample(system, case, turn, metric, value) for metric, value in values.items()]
    return results


def test_the_tables_show_ratios_cpu_in_parts_and_the_share_of_others() -> None:
    text = peer_report.markdown(published())
    assert "| produce 1 KB × 12 | throughput, MB/s | 100 | 110 | 1.10 | 88.0 | 0.88 |" in text
    assert "| produce 1 KB × 12 | 4.00 | 3.00 | 0.10 | 3.10 | 0.78 | 3.00 | 8.00 | 0.20 | 0.10 | 11.3 | 2.82 |" in text
    assert "| produce 1 KB × 12 | 1.00 | 2.00 | 3.00 | 1.00 | 2.00 | 3.00 | 1.00 | 2.00 | 3.00 |" in text
    assert "the Java producer reaches 0.80 of its rate" in text
    assert f"{IDLE} |" not in text


def test_a_machine_that_others_use_is_named() -> None:
    results = published()
    assert not peer_report.shares_line(results)
    results.samples = [
        msgspec.structs.replace(s, value=15.0) if (s.system, s.metric) == (LAKE, FOREIGN) else s
        for s in results.samples
    ]
    assert "Others used 16 % of the machine in produce 1 KB × 12 of Headwater" in peer_report.shares_line(results)


def test_publishing_replaces_the_section_of_that_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, page = tmp_path / "README.md", tmp_path / "kafka.md"
    index.write_text("# Index\n")
    page.write_text("# B\n\n<!-- published: kafka -->\nold\n<!-- end: kafka -->\n\nby hand\n")
    monkeypatch.setattr(report, "PAGES", tmp_path)
    assert report.publish_section("kafka", "new") == page
    assert page.read_text() == "# B\n\n<!-- published: kafka -->\nnew\n<!-- end: kafka -->\n\nby hand\n"
    assert index.read_text() == "# Index\n"
    assert report.publish_section("other", "text") == index
    assert index.read_text() == "# Index\n\n<!-- published: other -->\ntext\n<!-- end: other -->\n"


def test_every_benchmark_that_publishes_has_a_page() -> None:
    text = "".join(page.read_text() for page in report.PAGES.glob("*.md"))
    sections = ("kafka", "settling", "catchup", "ledgers", "http", "query", "links", "link freshness")
    assert not [name for name in sections if f"<!-- published: {name} -->" not in text]


def test_a_run_that_is_not_full_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(peer.typer.BadParameter, match="--publish takes a full run"):
        peer.main(quick=True, publish=True, workdir=tmp_path)
    with pytest.raises(peer.typer.BadParameter, match="more than an hour"):
        peer.main(turns=60, workdir=tmp_path)
