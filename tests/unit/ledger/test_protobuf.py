"""Messages that are described in a few lines."""

import pytest

from headwater.ledger.protobuf import messages
from tests.support.promise import promise

PROMISES = ("M1",)


@promise("M1")
def test_messages_are_those_of_protobuf() -> None:
    """The bytes are what protobuf's own specification says, and come back as they were."""
    found = messages(
        "tests.protobuf", {"Pair": ("bytes key = 1", "optional int64 value = 2", "repeated Pair next = 3")}
    )
    pair = found.Pair(key=b"ab", value=0, next=[found.Pair(key=b"c")])
    assert pair.SerializeToString() == b"\x0a\x02ab\x10\x00\x1a\x03\x0a\x01c"
    again = found.Pair.FromString(pair.SerializeToString() + b"\x20\x07")
    assert (again.key, again.value, again.next[0].key) == (b"ab", 0, b"c")
    assert again.HasField("value")
    assert not again.next[0].HasField("value")


@promise("M1")
@pytest.mark.parametrize("line", ["bytes key", "Unknown x = 1", "repeated = 3"])
def test_a_line_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="="):
        messages("tests.refused", {"Pair": (line,)})
