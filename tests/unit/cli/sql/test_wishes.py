"""Options of `headwater sql`: states of tables and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.cli.sql.wishes import parse_as_of, parse_parameter
from headwater.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("7", {"version": 7}),
        ("2026-11-17T22", {"tag": "2026-11-17T22"}),
        ("0:17,3:4", {"offsets": {"0": 17, "3": 4}}),
        ("@1769860800000", {"time": 1_769_860_800_000}),
        ("2026-01-31T12:00", {"time": 1_769_860_800_000}),
        ("2026-01-31T13:00+01:00", {"time": 1_769_860_800_000}),
    ],
)
def test_states_of_tables(text: str, body: dict[str, Any]) -> None:
    assert parse_as_of(text) == body


@pytest.mark.parametrize("text", ["", "yesterday", "@x", "0:1,", "-1", "1.5"])
def test_what_is_no_state(text: str) -> None:
    with pytest.raises(ConfigError, match="no state of a table"):
        parse_as_of(text)


def test_parameters() -> None:
    given = ["5", "0.5", "true", "null", '"5"', "text", "[1]", "{", "2026-01-31"]
    assert [parse_parameter(text) for text in given] == [5, 0.5, True, None, "5", "text", "[1]", "{", "2026-01-31"]
