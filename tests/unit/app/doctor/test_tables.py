"""What `headwater doctor` says about holds."""

from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_holds
from headwater.state.commands.base import Fence
from headwater.state.commands.holds import TakeHold
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.scribe import START_MS, Scribe

PROMISES = ("O6",)

GATEWAY, OTHER = 5, 6


def test_doctor_finds_holds_that_cannot_be() -> None:
    state = StreamsState(Domain(1))
    scribe = Scribe(state)
    scribe.do(GATEWAY, TakeHold())
    report = Report()
    check_holds(state, report)
    assert not report.findings
    scribe.do(1, Fence(OTHER))
    state.held.take(OTHER, START_MS + 9)
    check_holds(state, report)
    assert [finding.subject for finding in report.findings] == [f"epoch {OTHER}"] * 2
