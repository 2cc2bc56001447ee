"""The two servers of the suite, and all stories of the run told to both of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from harness import kafka
from harness.headwater import Headwater
from tests.compat.common import unavailable
from tests.differential.allowed import APART
from tests.differential.telling import Verdict, tell_all
from tests.support import open as open_list

KAFKA = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
"""
"""Beside quick groups: rules count where there are some, and transactions end soon after their time-outs."""
OURS = """\
[groups]
initial_rebalance_delay_ms = 0
consumer_assignment_interval_ms = 0

[security]
acls = true
allow_without_acls = true

[transactions]
check_interval_ms = 200
"""
"""The same settings for Headwater."""


@pytest.fixture(scope="session")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Apache Kafka's address and ours."""
    if not kafka.is_installed():
        unavailable(".tools/kafka", "run scripts/setup-tools kafka")
    directory = tmp_path_factory.mktemp("differential")
    with (
        kafka.Kafka(directory / "kafka", settings=kafka.QUICK_GROUPS + KAFKA, heap=kafka.SMALL) as theirs,
        Headwater(directory / "headwater", settings=OURS) as ours,
    ):
        yield theirs.bootstrap, ours.bootstrap
        theirs.kill()  # nobody needs what it would write down before it ends


@pytest.fixture(scope="session")
def verdicts(addresses: tuple[str, str], request: pytest.FixtureRequest) -> Mapping[str, Verdict]:
    """What came of the stories that this run has tests of. They are told side by side, before the first test."""
    wanted = [item.callspec.params["name"] for item in request.session.items if _tells(item)]
    return asyncio.run(tell_all(dict.fromkeys(wanted), addresses, {*open_list.stories(), *APART}))


def _tells(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "verdicts" in item.fixturenames and hasattr(item, "callspec")
