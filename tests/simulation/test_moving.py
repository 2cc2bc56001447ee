"""Shards move right after assignments, and no group of real clients' models sticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.registry import APIS
from tests.simulation.backends import BACKENDS
from tests.simulation.group_clients import OFFSET_FETCH
from tests.simulation.moving import MOVING
from tests.simulation.run import simulate
from tests.support.soak import WHOLE

PROMISES = ("K8", "K9", "K10")

pytestmark = pytest.mark.long
LOOK_FROM = 28
"""The seed with which the search for a planted error begins: the ones before it do not find it."""
SEEDS, ON_MODELS = (1_500, 100) if WHOLE else (12, 2)


def run_clean(seed: int, backend: str = "memory") -> int:
    """How often the members of a seed's group got partitions."""
    outcome = simulate(seed, backend=backend, scene=MOVING)
    assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
    return outcome.acknowledged


@pytest.mark.timeout(SEEDS * 4 + 120)
def test_groups_whose_shards_move_go_on() -> None:
    assert sum(map(run_clean, range(SEEDS))) > SEEDS


@pytest.mark.timeout(ON_MODELS * 10 + 120)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "memory"])
def test_groups_whose_shards_move_go_on_with_models_of_stores(backend: str) -> None:
    for seed in range(ON_MODELS):
        assert run_clean(seed, backend)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("code", ["not_coordinator", "coordinator_not_available"])
def test_an_error_that_librdkafka_does_not_retry_is_found(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models stick as the real clients do: a broker that refuses OffsetFetch after a move is found."""
    right = APIS[OFFSET_FETCH].handle

    async def refuses(broker: Any, request: Any) -> Mapping[str, Any]:
        name = request.body.groups[0].group_id
        place = broker.coordinator.place(name)
        if place is not None and place.node == broker.node and broker.membership.in_contact:
            answer: Mapping[str, Any] = await right(broker, request)  # type: ignore[misc]
            return answer
        return {"groups": [{"group_id": name, "error_code": ErrorCode[code], "topics": []}]}

    monkeypatch.setitem(APIS, OFFSET_FETCH, replace(APIS[OFFSET_FETCH], handle=refuses))
    for seed in range(LOOK_FROM, LOOK_FROM + 200):
        problem = simulate(seed, scene=MOVING).problem
        if problem is not None:
            assert "Librdkafka" in problem and "sticks" in problem
            return
    pytest.fail("not found within 200 seeds")
