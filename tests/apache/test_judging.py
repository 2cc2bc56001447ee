"""The list of tests that are left out is kept honest, and a server's properties become settings."""

from __future__ import annotations

import msgspec

from headwater.settings.settings import Settings
from tests.apache.listed import chosen, surprises
from tests.apache.properties import SETTINGS, secured, settings_of
from tests.apache.running import Outcome, Run


def _outcome(*ended: tuple[str, str], seconds: float = 1.0) -> Outcome:
    return Outcome([name for name, _ in ended], [Run(name, name, how, "boom", (), seconds) for name, how in ended])


def test_a_failure_that_is_not_listed_and_a_pass_that_is_are_surprises() -> None:
    outcome = _outcome(("A.good", "successful"), ("A.bad", "failed"), ("B.mended", "successful"), ("B.known", "failed"))
    listed = {"B.mended": "why", "B.known": "why"}
    now_and_then = {name: "sometimes: why" for name in ("A.good", "A.bad", "B.known")}
    assert surprises(outcome, listed).keys() == {"A.bad", "B.mended"}
    assert surprises(outcome, {**now_and_then, "B.mended": "why"}).keys() == {"B.mended"}
    assert "boom" in surprises(outcome, listed)["A.bad"]


def test_a_test_passes_if_all_its_runs_do() -> None:
    assert surprises(_outcome(("A.both", "failed"), ("A.both", "successful")), {}).keys() == {"A.both"}
    assert surprises(_outcome(("A.both", "successful"), ("A.both", "aborted")), {}).keys() == {"A.both"}
    assert not surprises(_outcome(("A.both", "successful"), ("A.both", "successful")), {})


def test_a_second_chance_counts_instead_of_the_first() -> None:
    first = _outcome(("A.slow", "failed"), ("A.good", "successful"), ("A.bad", "failed"))
    again = _outcome(("A.slow", "successful"), ("A.bad", "failed"))
    assert surprises(first.updated(again), {}).keys() == {"A.bad"}


def test_a_sample_has_the_quickest_of_every_class_first() -> None:
    runs = [("A.slow", 9.0), ("A.quick", 1.0), ("B.slow", 4.0), ("B.quick", 2.0), ("C.long", 50.0)]
    outcome = Outcome([], [Run(name, name, "successful", "", (), seconds) for name, seconds in runs])
    assert chosen(outcome, 3) == ["A.quick", "B.quick"]
    assert chosen(outcome, 3, {"A.quick"}) == ["B.quick"]
    assert chosen(outcome, 8) == ["A.quick", "B.quick", "B.slow"]


def test_properties_become_settings_that_there_are() -> None:
    samples = {bool: "true", int: "7", str: "text"}
    properties = {}
    for name, (path, _) in SETTINGS.items():
        value: object = Settings()
        for part in path.split("."):
            value = getattr(value, part)
        properties[name] = samples[type(value)]
    tree = settings_of({**properties, "log.cleaner.threads": "3"})
    secured(tree, "EXTERNAL", "SASL_PLAINTEXT", {})
    settings = msgspec.convert(tree, Settings)
    assert settings.groups.max_members == settings.default_partitions == 7
    assert settings.security.acls and settings.security.listener("EXTERNAL").mechanisms == "PLAIN"
