"""Stories about what servers tell of transactions: coordinators, lists, descriptions, features."""

from __future__ import annotations

from typing import Any

from tests.differential.stories_offsets import TRANSACTION
from tests.differential.stories_topics import existing
from tests.differential.stories_transactions import (
    ABORT,
    COMMIT,
    NO_PRODUCER,
    SECOND,
    Generation,
    described,
    each,
    init,
    producer,
    settled,
)
from tests.differential.story import Call, Note, Steps, Story, Told, Until, call, story


def listed(version: int, states: tuple[str, ...] = (), who: tuple[int, ...] = (), **more: Any) -> Call:
    return call("list_transactions", version, state_filters=states, producer_id_filters=who, **more)


def _found_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        def find(*keys: str) -> Call:
            fields = {"key": keys[0] if keys else "", "key_type": TRANSACTION, "coordinator_keys": keys}
            return call("find_coordinator", version, **fields)

        yield find(told.name("tx"))
        yield find("")
        yield init(told.name("tx"))
        yield find(told.name("tx"))
        if version >= 4:
            yield find(told.name("tx"), told.name("other"), "")
            yield find(told.name("tx"), told.name("tx"))
            yield find()

    return steps


each("find_coordinators_of_transactions", _found_in_version, (1, 3, 4, 6))


def _listed_in_version(version: int) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name())
        made = {}
        for name in ("empty", "open", "committed", "aborted"):
            made[name] = yield from producer(told.name(name), SECOND)
        for name in ("open", "committed", "aborted"):
            yield made[name].write(told.name())
        yield from made["committed"].ended(COMMIT)
        yield from made["aborted"].ended(ABORT)
        yield listed(version)
        states = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "PrepareCommit", "Dead", "Unknown", "ongoing")
        for state in states:
            yield listed(version, (state,))
        yield listed(version, ("Empty", "Ongoing", "Nonsense", ""))
        yield listed(version, (), (made["open"].who,))
        yield listed(version, (), (made["open"].who, made["empty"].who, NO_PRODUCER))
        yield listed(version, ("Empty",), (made["open"].who,))
        yield listed(version, (), (-1,))
        if version >= 1:
            for duration in (0, 1, 3_600_000, -5):
                yield listed(version, duration_filter=duration)
        if version >= 2:
            for pattern in (told.name(".*"), ".*-open", told.name("open"), "", "(", told.name("e")):
                yield listed(version, duration_filter=-1, transactional_id_pattern=pattern)

    return steps


each("list_transactions", _listed_in_version, range(3))


def _described(by: Generation) -> Story:
    def steps(told: Told) -> Steps:
        yield from existing(told.name("a"), 2)
        yield from existing(told.name("b"))
        one = yield from producer(told.name("tx"), by, timeout=30_000)
        yield described(one.id)
        yield one.add({told.name("a"): [1, 0]})
        yield one.write(told.name("a"))
        yield described(one.id)
        yield one.add({told.name("b"): [0]})
        yield one.add_offsets(told.name("g"))
        yield Until(described(one.id), lambda _: True)
        yield from one.ended(COMMIT)
        yield described(one.id)
        yield one.add({told.name("b"): [0]})
        yield from one.ended(ABORT)
        yield described(one.id)
        one.take((yield init(one.id)))
        yield described(one.id)
        yield described(told.name("unknown"))
        yield described("")
        yield described(one.id, told.name("unknown"))
        yield described()
        yield settled(one.id)

    return steps


each("describe_transactions", _described)


APIS = frozenset({22, 24, 25, 26, 28, 61, 65, 66})
"""The APIs of transactions, but for those that all producers and consumers use."""


@story
def versions_of_transactional_calls(told: Told) -> Steps:
    """Clients of the second generation look for the feature."""
    asked = call("api_versions", 4, client_software_name="d", client_software_version="1")
    answer = yield Until(asked, lambda _: True, recorded=False)
    yield Note("apis", tuple(row for row in answer.api_keys if row.api_key in APIS))
    for features in (answer.supported_features, answer.finalized_features):
        yield Note("features", tuple(row for row in features if row.name == "transaction.version"))
