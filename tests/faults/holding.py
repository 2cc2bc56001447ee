"""A transactional producer that does what it is told, a command a line, and may be paused between two commands.

    python -m tests.faults.holding ID TOPIC TIMEOUT_MS BOOTSTRAP

    write COUNT     writes to partition 0, in the open transaction or a new one; says `written COUNT` when the records
                    are acknowledged, or `refused WHY`
    commit          says `committed` or `refused WHY`

It says `ready` when it can begin. Keys are its id.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.faults.copiers.common import say

CALL_S = 60.0


class Holding:
    """The producer, and whether it is in a transaction."""

    def __init__(self, id_: str, topic: str, timeout_ms: int, bootstrap: str) -> None:
        self._id = id_
        self._topic = topic
        self._open = False
        self._refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": id_,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "error_cb": self._failed,
            }
        )
        self._producer.init_transactions(CALL_S)

    def write(self, count: int) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True
        for number in range(count):
            self._producer.produce(self._topic, str(number), self._id, 0)
        self._producer.flush(CALL_S)
        if self._refused:
            raise RuntimeError(self._refused[0])
        say("written", count)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._refused.append(repr(error))

    def commit(self) -> None:
        self._producer.commit_transaction(CALL_S)
        self._open = False
        say("committed")


def main() -> None:
    id_, topic, timeout_ms, bootstrap = sys.argv[1:]
    holding = Holding(id_, topic, int(timeout_ms), bootstrap)
    say("ready")
    for line in sys.stdin:
        word, *more = line.split()
        try:
            if word == "write":
                holding.write(int(more[0]))
            else:
                holding.commit()
        except (KafkaException, RuntimeError) as error:
            say("refused", repr(error))


if __name__ == "__main__":
    main()
