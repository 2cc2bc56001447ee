"""Back-pressure: pause at the limit, resume at half of it."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.link.ahead import Ahead
from headwater.settings.links import Links

LIMIT = 100


def test_it_pauses_at_the_limit_and_resumes_at_half_of_it() -> None:
    ahead = Ahead(Links(ahead_bytes=1, ahead_total_bytes=LIMIT))
    ahead.fetched(99)
    assert not ahead.paused
    ahead.fetched(1)
    assert ahead.paused
    assert not ahead.appended(49) and ahead.paused
    assert ahead.appended(1) and not ahead.paused
    assert not ahead.appended(50) and ahead.bytes == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60))))
def test_what_was_fetched_is_counted_until_it_is_appended(steps: list[tuple[bool, int]]) -> None:
    """It resumes once for every pause, and never stays paused with nothing ahead."""
    ahead, held, pauses, resumes = Ahead(Links(ahead_bytes=1, ahead_total_bytes=LIMIT)), 0, 0, 0
    for fetch, size in steps:
        was = ahead.paused
        if fetch:
            ahead.fetched(size)
            held += size
            pauses += ahead.paused and not was
        else:
            size = min(size, held)
            resumes += ahead.appended(size)
            held -= size
        assert ahead.bytes == held
        assert ahead.paused or held < LIMIT
        assert not ahead.paused or held > LIMIT // 2
        assert resumes == pauses - ahead.paused


def test_fetches_share_what_is_left() -> None:
    """However many brokers a source has. One partition may always be fetched."""
    ahead = Ahead(Links(fetch_bytes=2, fetch_total_bytes=20, ahead_bytes=4, ahead_total_bytes=LIMIT))
    given = [ahead.begin() for _ in range(30)]
    assert given[:8] == [20, 20, 15, 11, 8, 6, 5, 3] and set(given[10:]) == {2}
    for size in given:
        ahead.end(size)
    ahead.fetched(60)
    assert ahead.begin() == 10 and not ahead.paused
