"""Programs that host members of groups: one JSON request a line in, what happens as one JSON object a line out.

    {"do": "start", "member": M, "group": G, "topic": T, "assignor": A, "protocol": "classic" or "consumer",
     "session_ms": N, "instance": I or null}
    {"do": "leave", "member": M}

    {"member": M, "event": "assignment", "partitions": [P...]}      all that it has now
    {"member": M, "event": "record", "partition": P, "offset": O}
    {"member": M, "event": "committed", "offsets": {P: O}}          what it saw so far, before it asks for more
    {"member": M, "event": "uncommitted", "why": TEXT}              a commit that failed; it tries again while it may
    {"member": M, "event": "left"}
    {"member": M, "event": "failed", "why": TEXT}

The program is called with the bootstrap address as its last argument and ends, without a good-bye, when its input does.
This module is what the ones in Python share: each member has a thread of its own.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

POLL_S = 0.2
HEARTBEAT_MS = 1000
METADATA_MS = 1000
"""How soon a member sees that there are more partitions."""

_speaking = threading.Lock()


@dataclass(slots=True)
class Member:
    """One member: what it was asked for, and what it has to say."""

    bootstrap: str
    name: str
    group: str
    topic: str
    assignor: str
    protocol: str
    session_ms: int
    instance: str | None
    leaving: threading.Event = field(default_factory=threading.Event)
    partitions: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    """Where it has got to in its partitions and could not commit yet."""

    def say(self, event: str, **more: Any) -> None:
        with _speaking:
            sys.stdout.write(json.dumps({"member": self.name, "event": event, **more}) + "\n")
            sys.stdout.flush()

    def assigned(self, partitions: Iterable[int], *, added: bool = False) -> None:
        self.partitions = {*partitions, *(self.partitions if added else ())}
        self.say("assignment", partitions=sorted(self.partitions))

    def revoked(self, partitions: Iterable[int]) -> None:
        self.partitions -= set(partitions)
        self.ends = {p: end for p, end in self.ends.items() if p in self.partitions}
        self.say("assignment", partitions=sorted(self.partitions))

    def record(self, partition: int, offset: int) -> None:
        self.say("record", partition=partition, offset=offset)
        self.ends[partition] = offset + 1

    def committed(self, offsets: Mapping[int, int]) -> None:
        self.say("committed", offsets=offsets)
        self.ends = {p: end for p, end in self.ends.items() if offsets.get(p) != end}


def serve(live: Callable[[Member], None]) -> None:
    """Start and end members as the input says; `live` is a member's whole life."""
    members: dict[str, Member] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("member")
        if request.pop("do") == "leave":
            members[name].leaving.set()
        else:
            members[name] = Member(sys.argv[-1], name, **request)
            threading.Thread(target=_run, args=(live, members[name]), daemon=True).start()
    os._exit(0)


def _run(live: Callable[[Member], None], member: Member) -> None:
    try:
        live(member)
        member.say("left")
    except Exception as error:  # noqa: BLE001 - whatever a client raises is told to the test
        member.say("failed", why=repr(error))
