"""`headwater cost`, the cost calculator as a command."""

import json

from harness.process import headwater
from headwater.ops.cost import URSA
from tests.support.promise import promise

PROMISES = ("O7",)


@promise("O7")
def test_the_command() -> None:
    """For people and for programs; what makes no sense is refused."""
    text = headwater("cost", "--gb", "180", "--puts", str(URSA.puts), "--gets", str(URSA.gets))
    assert text.returncode == 0, text.stderr
    assert "$35.30" in text.stdout and "Kafka on disks" in text.stdout
    found = json.loads(headwater("cost", "--output", "json").stdout)
    assert [bill["system"] for bill in found] == ["Headwater", "Kafka on disks", "Kafka, tiered storage"]
    refused = headwater("cost", "--gb=-1")
    assert refused.returncode == 1 and "negative" in refused.stderr
