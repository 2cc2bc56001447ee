"""What all kinds of groups have in common, and kinds that this version does not know."""

import pytest

from headwater.coordination.common import GroupError
from headwater.coordination.group import Commit, Group, GroupContext
from headwater.coordination.kinds import KINDS, kind_of
from headwater.errors import Halted
from headwater.settings.settings import Groups
from tests.support.consumer_groups import TopicTable
from tests.support.promise import promise

PROMISES = ("K8", "K9")

CONTEXT = GroupContext(Groups(), lambda: "id", lambda name: {})
TOPICS = TopicTable(a=1)
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@every_kind
def test_a_new_group_is_empty_and_waits_for_nothing(kind: type[Group]) -> None:
    group = kind.create("g", CONTEXT, 0)
    assert kind_of(group.kind) is kind
    assert (group.state, group.is_empty, len(group.members)) == ("Empty", True, 0)
    assert group.next_deadline() is None
    group.tick(TOPICS, 1, 1)
    assert group.replies() == group.abandon("not_coordinator") == []
    assert not group.is_subscribed("a", TOPICS)


@promise("K10")
@every_kind
def test_callers_without_an_epoch_commit_to_an_empty_group(kind: type[Group]) -> None:
    group = kind.create("g", CONTEXT, 0)
    group.check_commit(Commit(member_id="", instance_id=None, epoch=-1, version=9), 0)
    group.check_fetch(None, -1)
    with pytest.raises(GroupError) as refused:
        group.check_commit(Commit(member_id="m", instance_id=None, epoch=1, version=9), 0)
    assert refused.value.code == "unknown_member_id"


@every_kind
def test_what_no_version_of_a_group_wrote_halts(kind: type[Group]) -> None:
    with pytest.raises(Halted):
        kind.restore("g", CONTEXT, b"\xc1", {}, 0)


def test_a_kind_of_a_later_version_halts() -> None:
    with pytest.raises(Halted, match="in the ledger is of kind 'share'; this version knows classic, consumer"):
        kind_of("share")
