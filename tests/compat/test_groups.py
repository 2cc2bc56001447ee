"""Groups of real clients. Members join, die, leave and come back; partitions are added; no record is skipped.

A client's scenarios run side by side, each with a group of its own: most of their time is waiting for sessions to end.
So do those of several clients. The members that stay alive share one process, those that are killed have one each.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.compat.common import DEADLINE_S
from tests.compat.group_clients import CLIENTS, MODERN, REMOTE_RANGE, UNIFORM, Client
from tests.compat.groups import Group, Host, Kind, Topic
from tests.support.promise import promise

PROMISES = ("K8", "K9")

pytestmark = pytest.mark.long
PARTITIONS, MORE_PARTITIONS = 6, 8
SET = AlterConfigOpType.SET
LONG_SESSION_MS = 45_000
"""Time enough for a process to start anew."""
AT_ONCE = 3
"""Clients whose scenarios run at one time. More would keep each other from their heartbeats while they start."""
CLASSIC, CONSUMER = "classic", "consumer"
Case = tuple[str, str]
"""A protocol and a client."""
CASES: Sequence[Case] = (*((CLASSIC, name) for name in CLIENTS), *((CONSUMER, name) for name in MODERN))
"""In the order in which they begin."""


class Scenes:
    """The scenarios of one client against one server."""

    def __init__(self, client: Client, bootstrap: str, processes: ExitStack) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self._processes = processes
        self._home = self.process()

    def process(self) -> Host:
        return self._processes.enter_context(Host(self._client.command, self._bootstrap, self._client.env or {}))

    def run(self, kinds: Sequence[Kind], static: bool) -> None:
        """All at once; every failure is told."""
        with ThreadPoolExecutor() as pool:
            scenes = [pool.submit(self.life, kind) for kind in kinds]
            if static:
                scenes.append(pool.submit(self.restart, replace(kinds[0], session_ms=LONG_SESSION_MS)))
        failures = [error for error in (scene.exception() for scene in scenes) if isinstance(error, Exception)]
        if failures:
            raise ExceptionGroup("scenarios failed", failures)

    def life(self, kind: Kind) -> None:
        """Three join; one is killed; one leaves; there are more partitions; the last one leaves."""
        group = Group(kind)
        topic = Topic(self._bootstrap, group.topic, PARTITIONS)
        a, b, c = (f"{group.id}/{name}" for name in "abc")
        first = topic.write()
        mortal = self.process()
        mortal.start(group, "a")
        for name in "bc":
            self._home.start(group, name)
        group.settled((a, b, c), PARTITIONS)
        group.got(first)
        self._steady(group, topic)

        mortal.kill()
        del group.members[a]
        meanwhile = topic.write()
        group.settled((b, c), PARTITIONS)
        group.got(meanwhile)
        self._steady(group, topic)

        self._home.leave(group, "c")
        meanwhile = topic.write()
        group.settled((b,), PARTITIONS)
        group.got(meanwhile)
        self._steady(group, topic)

        topic.grow(MORE_PARTITIONS)
        meanwhile = topic.write()
        group.settled((b,), MORE_PARTITIONS)
        group.got(meanwhile)
        self._steady(group, topic)

        self._home.leave(group, "b")
        self._check_all(group, topic)

    def restart(self, kind: Kind) -> None:
        """A static member dies and is back within its session: nobody else notices.

        The consumer protocol gives an instance to another process only once the first one has said good-bye.
        """
        group = Group(kind)
        if kind.protocol == "consumer":
            self._give_time(group)
        topic = Topic(self._bootstrap, group.topic, PARTITIONS)
        stays, dies = f"{group.id}/stays", f"{group.id}/dies"
        self._home.start(group, "stays", "instance-1")
        group.settled((stays,), PARTITIONS)
        mortal, heir = self.process(), self.process()
        mortal.start(group, "dies", "instance-2")
        group.settled((stays, dies), PARTITIONS)
        self._steady(group, topic)

        had, changes = group.members[dies].assignment, group.members[stays].changes
        if kind.protocol == "consumer":
            mortal.leave(group, "dies")
        mortal.kill()
        meanwhile = topic.write()
        heir.start(group, "dies", "instance-2")
        group.wait(lambda: group.members[dies].assignment == had, "the restarted member has what it had")
        group.got(meanwhile)
        self._steady(group, topic)
        assert group.members[stays].changes == changes, "the other member was disturbed"
        self._check_all(group, topic)

    def _give_time(self, group: Group) -> None:
        """Set the sessions of a group of the consumer protocol, whose members bring none of their own."""
        session = ConfigEntry("consumer.session.timeout.ms", str(group.kind.session_ms), incremental_operation=SET)
        resource = ConfigResource(ResourceType.GROUP, group.id, incremental_configs=[session])
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        [answer] = admin.incremental_alter_configs([resource]).values()
        answer.result(DEADLINE_S)

    def _steady(self, group: Group, topic: Topic) -> None:
        """While nothing else happens every record is seen exactly once."""
        places = topic.write()
        group.got(places)
        assert {group.records[place] for place in places} == {1}

    def _check_all(self, group: Group, topic: Topic) -> None:
        """Nothing was skipped, nothing was invented, and the offsets are where the records end."""
        assert group.records.keys() == set(topic.written)
        ends = {p: 1 + max(o for q, o in topic.written if q == p) for p in range(topic.partitions)}
        assert topic.committed(group.id) == ends


@pytest.fixture(scope="module")
def outcomes(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Mapping[Case, Future[None]]]:
    """The cases that this run has tests of. They have begun, or will."""
    wanted = {item.callspec.params["case"] for item in request.session.items if _has_outcome(item)}
    with ThreadPoolExecutor(AT_ONCE, "clients") as pool:
        yield {case: pool.submit(_live, case, bootstrap) for case in CASES if case in wanted}
        pool.shutdown(cancel_futures=True)


def _has_outcome(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "outcomes" in item.fixturenames


def _live(case: Case, bootstrap: str) -> None:
    protocol, name = case
    client = CLIENTS[name]()
    kinds, static = ((UNIFORM, REMOTE_RANGE), True) if protocol == CONSUMER else (client.kinds, client.static)
    with ExitStack() as processes:
        Scenes(client, bootstrap, processes).run(kinds, static)


@promise("K8", "K9")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_groups(case: Case, outcomes: Mapping[Case, Future[None]]) -> None:
    """Eager and cooperative assignors, static members where the client has them, and the consumer protocol with both
    assignors of the server."""
    outcomes[case].result()
