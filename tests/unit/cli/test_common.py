"""The exit codes of errors, what terminals are told, and durations."""

import pytest

from headwater.cli import common, errors
from headwater.client.errors import AnswerLost, Unreachable
from headwater.errors import ConfigError, Damaged, Halted, HeadwaterError, OutcomeUnknown, Overloaded, StoreFull
from tests.support.promise import promise


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 1),
        (Unreachable("x"), 2),
        (AnswerLost("x"), 2),
        (StoreFull("x"), 4),
        (OutcomeUnknown("x"), 4),
        (Damaged("x"), 4),
        (Halted("x"), 5),
        (Overloaded("x"), 2),
        (HeadwaterError("x"), 10),
        (RuntimeError("x"), 10),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert errors.exit_code(error) == code


def test_a_terminal_obeys_nothing_in_what_is_shown(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Values of dead letters, names and messages of servers are those of others."""
    common.put_table(["ERROR", "VALUE"], [("bad \x1b[2J", "\x9b31m\r\u202e")])
    common.complain("no \x1b]0;title\x07 topic")
    common.flush()
    out, err = capfdbinary.readouterr()
    assert not {0x1B, 0x07, 0x0D} & {*out, *err} and "\x9b".encode() not in out and "\u202e".encode() not in out
    assert rb"bad \x1b[2J" in out and rb"no \x1b]0;title\x07 topic" in err


@promise("T5")
def test_durations() -> None:
    assert [common.parse_duration(text) for text in ("250ms", "90s", "30m", "12h", "7d", " 0s ")] == [
        250, 90_000, 1_800_000, 43_200_000, 604_800_000, 0,
    ]  # fmt: skip
    for text in ("", "s", "1", "1w", "-1s", "1.5h", "9" * 16 + "s"):
        with pytest.raises(ConfigError):
            common.parse_duration(text)
