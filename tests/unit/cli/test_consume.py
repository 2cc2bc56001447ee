"""Places in a log as commands take them."""

import pytest

from headwater.cli.consume import Origin, Where, parse_origin
from headwater.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("beginning", Origin(Where.BEGINNING)),
        ("end", Origin(Where.END)),
        ("0", Origin(Where.OFFSET, 0)),
        ("20260131", Origin(Where.OFFSET, 20260131)),
        ("@1700000000000", Origin(Where.TIME, 1_700_000_000_000)),
        ("2026-01-31", Origin(Where.TIME, 1_769_817_600_000)),
        ("2026-01-31T01:00:00.123+01:00", Origin(Where.TIME, 1_769_817_600_123)),
        ("1969-12-31", Origin(Where.TIME, 0)),
    ],
)
def test_places_in_a_log(text: str, origin: Origin) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize("text", ["", "-1", "@", "@x", "²", "start", "2026-13-01", str(1 << 63)])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_origin(text)


# --- processes -----------------------------------------------------------------------------------------
