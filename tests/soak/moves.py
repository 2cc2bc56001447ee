"""Real clients whose coordinator is fenced or killed in the moment in which they get partitions.

Every client and every protocol, several times. In each round a member joins. As soon as a member says that it has new
partitions, the coordinator is paused until it is fenced, or killed. Then records are written: all must be read and
committed, and all members must share the partitions.

python -m tests.soak.moves --rounds 6 --seed 1 [--client librdkafka] [--ledger etcd]
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from dataclasses import dataclass, field

from harness.tools import Missing
from tests.compat.group_clients import CLIENTS, MODERN, REMOTE_RANGE, UNIFORM
from tests.compat.groups import Group, Host, Kind, Topic
from tests.soak.common import Verdict, console, progress, workplace
from tests.support.coordinating import coordinator_of, fence
from tests.support.running import Running

PROMISES = ("K8", "K9", "K10")

BROKERS, PARTITIONS, RECORDS = 3, 6, 5
SETTINGS = """\
[groups]
initial_rebalance_delay_ms = 100
min_session_timeout_ms = 4000
consumer_session_timeout_ms = 4000
consumer_heartbeat_interval_ms = 1000
"""
LIMIT_S = 60.0
"""A session that ends, a rebalance, a broker that starts again, on a busy machine."""


@dataclass(slots=True)
class Rounds:
    """What came of the rounds of one client and protocol."""

    moves: int = 0
    longest: float = 0.0
    problems: list[str] = field(default_factory=list)


def play(server: Running, host: Host, kind: Kind, rounds: int, chance: random.Random) -> Rounds:
    """One group that lives through so many moves of its shard."""
    found = Rounds()
    group = Group(kind)
    topic = Topic(server.bootstrap, group.topic, PARTITIONS)
    host.start(group, "stays")
    try:
        group.settled([f"{group.id}/stays"], PARTITIONS)
        for number in range(rounds):
            node = coordinator_of(server, group.id)
            changed = functools.partial(_changed, group, _changes(group))
            host.start(group, f"guest-{number}")
            group.wait(changed, "an assignment")
            if chance.random() < 0.7:
                fence(server, node)
            else:
                server.broker(node).kill()
            began = time.monotonic()
            group.got(topic.write(RECORDS))
            group.settled([name for name, seen in group.members.items() if not seen.left], PARTITIONS)
            found.longest = max(found.longest, time.monotonic() - began)
            found.moves += 1
            host.leave(group, f"guest-{number}")
    except (AssertionError, TimeoutError) as error:
        found.problems.append(str(error))
    return found


def _changes(group: Group) -> int:
    """How many assignments the members have got so far."""
    return sum(seen.changes for seen in group.members.values())


def _changed(group: Group, before: int) -> bool:
    return _changes(group) > before


def soak(server: Running, options: argparse.Namespace, verdict: Verdict) -> None:
    chance = random.Random(options.seed)
    address = server.bootstrap.split(",")[0]  # any broker names the others
    names = [options.client] if options.client else list(CLIENTS)
    with progress() as bars:
        bar = bars.add_task("clients", total=len(names), now="")
        for name in names:
            try:
                client = CLIENTS[name]()
            except Missing as missing:
                verdict.fact(name, f"left out: {missing}")
                continue
            kinds = [*client.kinds, *((UNIFORM, REMOTE_RANGE) if name in MODERN else ())]
            for kind in kinds:
                what = f"{name}, {kind.protocol}, {kind.assignor}"
                bars.update(bar, now=what)
                with Host(client.command, address, client.env or {}) as host:
                    found = play(server, host, kind, options.rounds, chance)
                for problem in found.problems:
                    console.print(f"{what}: {problem}")
                verdict.floor(f"{what}: moves that it lived through", found.moves, options.rounds)
                verdict.rule(f"{what}: seconds until it was well again", found.longest, LIMIT_S)
            bars.advance(bar)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", choices=CLIENTS, help="this client only")
    parser.add_argument("--ledger", default="", help="the kind of ledger; the embedded one if it is not given")
    options = parser.parse_args()
    verdict = Verdict(f"shards that move at assignments, {options.rounds} rounds")
    with (
        workplace("moves") as directory,
        Running(directory, brokers=BROKERS, settings=SETTINGS, ledger=options.ledger) as server,
    ):
        soak(server, options, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
