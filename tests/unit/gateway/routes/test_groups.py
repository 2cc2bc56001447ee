"""Groups over HTTP: stored members, lag, offsets that are set and reset, and what a gateway may not do to a group."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headwater.coordination.consumer.members import ConsumerMember
from headwater.coordination.consumer.members import Head as ConsumerHead
from headwater.coordination.consumer.members import encode_member as encode_consumer
from headwater.gateway.admin.groups import MAX_OFFSETS
from headwater.log.damage import BadRange, path_of
from headwater.settings.settings import Gateway, Groups, Settings
from headwater.state.cluster.access import AclResource, Operation
from tests.support.gateways import ALICE, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule
from tests.support.stored_groups import classic, reads, store

PROMISES = ("H2",)

PATH = "/v1/groups/readers"


def places(answer: Any) -> list[tuple[str, int, int]]:
    """The offsets of an answer."""
    return [(line["topic"], line["partition"], line["offset"]) for line in answer.json()["offsets"]]


def one(topic: str, partition: int, offset: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset, **more}


def offsets(*lines: dict[str, Any]) -> dict[str, Any]:
    return {"json": {"offsets": list(lines)}}


def test_offsets_are_set_and_shown_with_their_lag() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=2))) as found:
            await found.topic("orders", 3)
            await found.fill("orders", 10)
            answer = await found.ask(
                "PUT", f"{PATH}/offsets", **offsets(one("orders", 0, 4, metadata="x"), one("orders", 2, 7))
            )
            assert answer.status_code == 200 and places(answer) == [("orders", 0, 4), ("orders", 2, 7)]
            await found.ask("PUT", f"{PATH}/offsets", **offsets(one("orders", 1, 0)))
            first = (await found.get(f"{PATH}/offsets")).json()
            assert [(o["partition"], o["offset"], o["end"], o["lag"]) for o in first["items"]] == [
                (0, 4, 10, 6), (1, 0, 0, 0),
            ]  # fmt: skip
            assert first["items"][0]["metadata"] == "x" and first["items"][0]["committed_ms"] > 0
            second = (await found.get(f"{PATH}/offsets", params={"next": first["next"]})).json()
            assert [o["partition"] for o in second["items"]] == [2] and "next" not in second
            told = (await found.get(PATH)).json()
            assert (told["kind"], told["state"], told["members"]) == ("none", "Empty", [])
            assert (told["offsets"], told["lag"]) == (3, 6)

    asyncio.run(story())


@promise("L10")
def test_an_offset_at_damaged_records_says_so() -> None:
    """With the way on, as far as this gateway has met the damage."""

    async def story() -> None:
        async with gateway() as found:
            made = await found.topic("orders")
            await found.fill("orders", 3)
            domain = min(found.services.domains)
            state = found.services.domains[domain].state
            stream = state.streams[made.streams[0]]
            entry, damage = stream.index[0], found.services.reader.damage
            damage.note(BadRange(domain, stream.id, entry.start, entry.end, path_of(state, stream, entry), "gone"))
            for offset, waits in ((entry.start, True), (entry.end, False)):
                await found.ask("PUT", f"{PATH}/offsets", **offsets(one("orders", 0, offset)))
                [line] = (await found.get(f"{PATH}/offsets")).json()["items"]
                assert ("cannot be read" in line["damage"]) == waits
                assert (f"group reset readers --topic orders --partition 0 --to {entry.end}" in line["damage"]) == waits

    asyncio.run(story())


@pytest.mark.parametrize(
    "lines",
    [
        [one("orders", 0, 4), one("orders", 5, 1)],
        [one("orders", 0, 4), one("orders", 0, 5)],
        [one("orders", 0, 4), one("orders", 1, -1)],
        [one("orders", 0, 4), one("orders", 1, 1 << 63)],
        [one("orders", 0, 4, metadata="m" * 21)],
        [one("orders", 0, 4, colour="red")],
        [one("orders", p % 2, 4) for p in range(MAX_OFFSETS + 1)],
    ],
)
def test_offsets_are_set_together_or_not_at_all(lines: list[dict[str, Any]]) -> None:
    async def story() -> None:
        async with gateway(Settings(groups=Groups(offset_metadata_bytes=20))) as found:
            await found.topic("orders", 2)
            answer = await found.ask("PUT", f"{PATH}/offsets", **offsets(*lines))
            assert answer.status_code == 400, answer.text
            assert (await found.get(PATH)).status_code == 404

    asyncio.run(story())


@pytest.mark.parametrize(
    ("wanted", "offset"),
    [
        ({"to": "earliest"}, 2),
        ({"to": "latest"}, 10),
        ({"to": "offset", "offset": 5}, 5),
        ({"to": "offset", "offset": 1}, 2),
        ({"to": "offset", "offset": 99}, 10),
        ({"to": "time", "time_ms": 1_000}, 2),
        ({"to": "time", "time_ms": 1_500}, 5),
        ({"to": "time", "time_ms": 3_000}, 10),
    ],
)
def test_a_group_is_moved_to_a_place(wanted: dict[str, Any], offset: int) -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await found.fill("orders", 5, timestamp=1_000)
            await found.fill("orders", 5, timestamp=2_000)
            await found.ask("POST", "/v1/topics/orders/trim", json={"partitions": [{"partition": 0, "before": 2}]})
            body = {"json": {"topic": "orders", **wanted}}
            checked = await found.ask("POST", f"{PATH}/reset", params={"validate_only": "true"}, **body)
            assert checked.status_code == 200 and places(checked) == [("orders", 0, offset), ("orders", 1, 0)]
            assert (await found.get(PATH)).status_code == 404
            done = await found.ask("POST", f"{PATH}/reset", **body)
            assert done.json() == checked.json()
            told = (await found.get(f"{PATH}/offsets")).json()["items"]
            assert [(line["partition"], line["offset"]) for line in told] == [(0, offset), (1, 0)]

    asyncio.run(story())


@pytest.mark.parametrize(
    "wanted",
    [
        {"to": "offset"},
        {"to": "earliest", "offset": 1},
        {"to": "time"},
        {"to": "latest", "time_ms": 1},
        {"to": "yesterday"},
        {"to": "latest", "partitions": [0, 7]},
        {"to": "latest", "partitions": [0, 0]},
    ],
)
def test_a_reset_that_is_not_valid_changes_nothing(wanted: dict[str, Any]) -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            answer = await found.ask("POST", f"{PATH}/reset", json={"topic": "orders", **wanted})
            assert answer.status_code == 400, answer.text
            assert (await found.get(PATH)).status_code == 404

    asyncio.run(story())


def test_members_of_a_classic_group() -> None:
    """A group with members keeps its offsets, and only its coordinator deletes it."""

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 3)
            await classic(found, assignment=reads("orders", 2, 0))
            told = (await found.get(PATH)).json()
            assert (told["kind"], told["state"], told["protocol_type"]) == ("classic", "Stable", "consumer")
            assert told["members"] == [{
                "id": "m1", "instance": "one", "client": "app", "host": "10.0.0.1",
                "assigned": [{"topic": "orders", "partitions": [0, 2]}],
            }]  # fmt: skip
            for method, path, body in (
                ("PUT", f"{PATH}/offsets", offsets(one("orders", 0, 0))),
                ("POST", f"{PATH}/reset", {"json": {"topic": "orders", "to": "latest"}}),
            ):
                answer = await found.ask(method, path, **body)
                assert answer.status_code == 409 and "stop its members" in answer.json()["detail"]
            assert (await found.get(f"{PATH}/offsets")).json() == {"items": []}
            answer = await found.ask("DELETE", PATH)
            assert answer.status_code == 409 and "headwater group delete readers" in answer.json()["detail"]
            assert (await found.get(PATH)).status_code == 200

    asyncio.run(story())


@pytest.mark.parametrize("assignment", [b"", b"\0", reads("orders", 1)[:-7], b"\0\1\0\0\0\1\xff\xff" + b"\0" * 8])
def test_an_assignment_that_cannot_be_read(assignment: bytes) -> None:
    async def story() -> None:
        async with gateway() as found:
            await classic(found, assignment=assignment)
            assert (await found.get(PATH)).json()["members"][0]["assigned"] == []

    asyncio.run(story())


def test_members_of_a_consumer_group() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 3)
            held = {topic.id: frozenset({1, 2})}
            member = ConsumerMember(member_id="m2", client_id="app", client_host="/10.0.0.2", epoch=2, assigned=held)
            head = msgspec.msgpack.encode(ConsumerHead(1, 2, 2, b""))
            await store(found, "readers", "consumer", head, {"m2": encode_consumer(member)})
            told = (await found.get(PATH)).json()
            assert (told["kind"], told["state"]) == ("consumer", "Stable")
            assert told["members"][0]["assigned"] == [{"topic": "orders", "partitions": [1, 2]}]

    asyncio.run(story())


def test_groups_in_pages_and_deleted() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=2))) as found:
            await found.topic("orders")
            for name in ("c", "a", "b"):
                await found.ask("PUT", f"/v1/groups/{name}/offsets", **offsets(one("orders", 0, 0)))
            first = (await found.get("/v1/groups")).json()
            assert first["items"] == [{"name": name, "kind": "none", "members": 0} for name in ("a", "b")]
            second = (await found.get("/v1/groups", params={"next": first["next"]})).json()
            assert [line["name"] for line in second["items"]] == ["c"]
            assert (await found.ask("DELETE", "/v1/groups/b")).status_code == 204
            assert (await found.ask("DELETE", "/v1/groups/b")).status_code == 404
            assert [line["name"] for line in (await found.get("/v1/groups")).json()["items"]] == ["a", "c"]

    asyncio.run(story())


def test_offsets_of_a_topic_that_does_not_exist() -> None:
    async def story() -> None:
        async with gateway() as found:
            assert (await found.ask("PUT", f"{PATH}/offsets", **offsets(one("none", 0, 0)))).status_code == 404
            reset = {"topic": "none", "to": "latest"}
            assert (await found.ask("POST", f"{PATH}/reset", json=reset)).status_code == 404
            assert (await found.get(f"{PATH}/offsets")).status_code == 404

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    """READ of the group and the topic to commit; DELETE of the group to delete it; hidden topics are left out."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.topic("hidden")
            commit = offsets(one("orders", 0, 0))
            group = AclResource.GROUP
            for call in (("GET", PATH, {}), ("PUT", f"{PATH}/offsets", commit), ("DELETE", PATH, {})):
                assert (await found.ask(call[0], call[1], "bob", **call[2])).status_code == 404
            await found.allow(rule(ALICE, Operation.READ, "readers", group))
            assert (await found.ask("PUT", f"{PATH}/offsets", "alice", **commit)).status_code == 404
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            assert (await found.ask("PUT", f"{PATH}/offsets", "alice", **commit)).status_code == 403
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            assert (await found.ask("PUT", f"{PATH}/offsets", "alice", **commit)).status_code == 200
            await found.allow(rule(ALICE, Operation.READ, "hidden"))
            both = offsets(one("orders", 0, 0), one("hidden", 0, 0))
            assert (await found.ask("PUT", f"{PATH}/offsets", "alice", **both)).status_code == 200
            await found.allow(rule("User:bob", Operation.DESCRIBE, "readers", group))
            await found.allow(rule("User:bob", Operation.DESCRIBE, "orders"))
            seen = (await found.get(f"{PATH}/offsets", "bob")).json()["items"]
            assert [line["topic"] for line in seen] == ["orders"]
            assert (await found.ask("DELETE", PATH, "alice")).status_code == 403
            assert (await found.get("/v1/groups", "alice")).json()["items"]
            await found.allow(rule(ALICE, Operation.DELETE, "readers", group))
            assert (await found.ask("DELETE", PATH, "alice")).status_code == 204
            assert (await found.get("/v1/groups", "alice")).json() == {"items": []}

    asyncio.run(story())
