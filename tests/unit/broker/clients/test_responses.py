"""Unread answers are limited over all connections: those who read are served, those who do not are closed."""

from headwater.broker.clients.responses import LITTLE_BYTES, SLOWEST_BYTES_PER_SECOND, SMALL_ANSWER_BYTES, Responses

PROMISES = ("S4",)

LIMIT = 1_000_000
SECONDS = 10.0


def responses() -> tuple[Responses, list[int]]:
    made = Responses(LIMIT, SECONDS)
    levels: list[int] = []
    made.on_change = lambda: levels.append(made.level)
    return made, levels


def test_who_waits() -> None:
    made, levels = responses()
    made.queued("slow", LIMIT, 0.0)
    assert not made.level and not made.holds("slow")
    made.queued("little", LITTLE_BYTES, 0.0)
    assert made.level == 1
    assert made.holds("slow") and not made.holds("little") and not made.holds("reader")
    made.queued("little", 0, 0.0)
    made.queued("other", LITTLE_BYTES + 1, 0.0)
    assert made.holds("other")
    made.queued("other", 0, 0.0)
    assert made.level == 1, "it is left at half"
    assert not made.holds("other")
    made.queued("other", LIMIT + 1, 0.0)
    assert made.level == 2 and made.holds("reader")
    made.gone("slow")
    assert made.level == 2 and made.bytes == LIMIT + 1
    made.queued("other", LIMIT, 0.0)
    assert made.level == 1 and not made.holds("reader")
    made.queued("other", LIMIT // 2, 0.0)
    assert levels == [1, 2, 1, 0]
    made.gone("other")
    assert made.bytes == 0 and not made.owners()


def test_answers_that_are_being_read_count() -> None:
    made, levels = responses()
    assert made.fetch_limit(50 << 20) == 50 << 20
    made.begin_reading(LIMIT + 1)
    assert made.fetch_limit(50 << 20) == SMALL_ANSWER_BYTES
    assert made.fetch_limit(100) == 100
    made.end_reading(LIMIT + 1)
    assert levels == [1, 0]


def test_who_is_closed() -> None:
    made, _ = responses()
    fast = round(SLOWEST_BYTES_PER_SECOND * SECONDS)
    made.queued("silent", LIMIT, 0.0)
    made.queued("dripping", LIMIT, 0.0)
    made.queued("reading", LIMIT, 0.0)
    made.queued("dripping", LIMIT - 1, SECONDS - 1)
    made.queued("reading", LIMIT - fast, SECONDS - 1)
    assert made.stalled(SECONDS - 1) == []
    assert made.stalled(SECONDS) == ["silent", "dripping"]
    made.gone("silent")
    made.gone("dripping")
    assert made.stalled(2 * SECONDS) == [], "there is room: nobody is closed"
