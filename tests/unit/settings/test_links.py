"""Settings of links: defaults that work, and values that cannot."""

from typing import Any

import msgspec
import pytest

from headwater.errors import ConfigError
from headwater.settings.links import Links, check_links
from headwater.settings.settings import load
from tests.support.promise import promise


@promise("N2")
def test_defaults() -> None:
    """The numbers of retries and of the breaker."""
    own = load(environment={"HEADWATER_LINKS__FLUSH_MS": "0"}).links
    assert own == Links(flush_ms=0)
    assert (own.retry_first_ms, own.retry_longest_ms, own.retry_jitter_percent, own.retry_tries) == (
        100,
        30_000,
        10,
        10,
    )
    assert (own.breaker_failures, own.breaker_open_ms, own.breaker_successes) == (5, 30_000, 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"flush_bytes": 0}, "links.flush_bytes must be above 0"),
        ({"flush_ms": -1}, "links.flush_ms must not be negative"),
        ({"retry_jitter_percent": 101}, "retry_jitter_percent must not be above 100"),
        ({"retry_first_ms": 40_000}, "retry_first_ms must not be above links.retry_longest_ms"),
        ({"fetch_bytes": 64 << 20}, "fetch_bytes must not be above links.fetch_total_bytes"),
        ({"fetch_total_bytes": 128 << 20}, "fetch_total_bytes must not be above 104857600"),
        ({"ahead_bytes": 512 << 20}, "ahead_bytes must not be above links.ahead_total_bytes"),
        ({"secret_directories": ("secrets",)}, "links.secret_directories: 'secrets' is not an absolute path"),
        ({"fetch_wait_ms": 30_000}, "fetch_wait_ms must be below links.request_ms"),
    ],
)
def test_what_cannot_work(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_links(msgspec.structs.replace(Links(), **wrong))
