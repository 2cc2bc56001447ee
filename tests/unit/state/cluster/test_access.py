"""Rules, against a model that goes through all of them one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.settings.settings import Security
from headwater.state.cluster.access import (
    ANYBODY,
    THE_CLUSTER,
    Access,
    AclResource,
    Filter,
    Operation,
    Pattern,
    Permission,
    objection,
)
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.access import Acl, DropAcls, DropUser, PutAcls, PutUser
from headwater.state.records import Record, decode, encode
from headwater.state.results import Done, Refused
from headwater.types import Position
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("S2",)

NAMES = ("a", "ab", "abc", "b", "*")
PRINCIPALS = ("User:x", "User:y", ANYBODY)
HOSTS = ("1.1.1.1", "2.2.2.2", "*")
OPERATIONS = [o for o in Operation if o not in (Operation.UNKNOWN, Operation.ANY)]
KINDS = (AclResource.TOPIC, AclResource.GROUP)

acls = st.builds(
    Acl,
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from((Pattern.LITERAL, Pattern.PREFIXED)),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from((Permission.DENY, Permission.ALLOW, Permission.ALLOW)),
)


def _concerns(acl: Acl, name: str) -> bool:
    if acl.pattern == Pattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def _grants(acl: Acl, operation: Operation) -> bool:
    implied = {
        Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
        Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
    }
    return acl.operation in (operation, Operation.ALL, *implied.get(operation, ()))


def naive(
    rules: list[Acl], principal: str, host: str, operation: Operation, kind: AclResource, name: str
) -> bool | None:
    """Kafka's rules as its documentation tells them."""
    about = [acl for acl in rules if acl.kind == kind and _concerns(acl, name)]
    if not about:
        return None
    ours = [acl for acl in about if acl.principal in (principal, ANYBODY) and acl.host in (host, "*")]
    if any(a.permission == Permission.DENY and a.operation in (operation, Operation.ALL) for a in ours):
        return False
    return any(a.permission == Permission.ALLOW and _grants(a, operation) for a in ours)


@promise("S2")
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(acls, max_size=8), st.sets(st.integers(0, 7)))
def test_decisions_are_those_of_the_model(rules: list[Acl], dropped: set[int]) -> None:
    """Also after some of the rules are gone again, and after a checkpoint."""
    access = Access()
    for acl in rules:
        assert isinstance(access.put_acls(PutAcls((acl,))), Done)
    gone = tuple(rules[i] for i in dropped if i < len(rules))
    assert access.drop_acls(DropAcls(gone)) == Done(len(set(gone)))
    left = [acl for acl in dict.fromkeys(rules) if acl not in gone]
    assert list(access.acls()) == left
    restored = Access()
    restored.restore(access.image())
    for principal, host, kind in itertools.product(("User:x", "User:z"), ("1.1.1.1", "3.3.3.3"), KINDS):
        for operation, name in itertools.product(OPERATIONS, ("a", "ab", "abcd", "b", "c")):
            expected = naive(left, principal, host, operation, kind, name)
            assert access.decide(principal, host, operation, kind, name) is expected
            assert restored.decide(principal, host, operation, kind, name) is expected


@promise("S2")
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(acls, max_size=8), st.sampled_from(OPERATIONS), st.sampled_from(KINDS))
def test_something_is_allowed_to_something_if_there_is_such_a_name(
    rules: list[Acl], operation: Operation, kind: AclResource
) -> None:
    """The names that can tell are those of rules, and those one character longer."""
    access = Access()
    access.put_acls(PutAcls(tuple(rules)))
    names = [n for acl in rules if acl.kind == kind for n in (acl.name, acl.name + "~")] + ["~"]
    expected = any(naive(rules, "User:x", "1.1.1.1", operation, kind, name) is True for name in names if name != "*")
    assert access.decide_any("User:x", "1.1.1.1", operation, kind) is expected


@promise("S2")
@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(acls, max_size=8, unique=True),
    st.sampled_from(list(Pattern)[1:]),
    st.sampled_from((None, *NAMES)),
    st.sampled_from((None, *PRINCIPALS)),
)
def test_filters(rules: list[Acl], pattern: Pattern, name: str | None, principal: str | None) -> None:
    """MATCH finds what applies to a name, ANY what is written with it, the others one way of writing it."""
    access = Access()
    access.put_acls(PutAcls(tuple(rules)))

    def meant(acl: Acl) -> bool:
        if principal is not None and acl.principal != principal:
            return False
        if pattern in (Pattern.LITERAL, Pattern.PREFIXED) and acl.pattern != pattern:
            return False
        if name is None:
            return True
        return _concerns(acl, name) if pattern is Pattern.MATCH else acl.name == name

    found = access.matching(Filter(pattern=pattern, name=name, principal=principal))
    assert found == sorted(acl for acl in rules if meant(acl))


GOOD = Acl(AclResource.TOPIC, "t", Pattern.LITERAL, "User:x", "*", Operation.READ, Permission.ALLOW)


@promise("S2")
@pytest.mark.parametrize(
    "change",
    [
        {"kind": 0}, {"kind": 1}, {"kind": 99}, {"pattern": 2}, {"pattern": 0}, {"operation": 1}, {"operation": 77},
        {"permission": 1}, {"permission": 0}, {"name": ""}, {"principal": "x"}, {"principal": ":x"}, {"host": ""},
        {"kind": int(AclResource.CLUSTER)}, {"name": "n" * 5000},
    ],
)  # fmt: skip
def test_rules_that_cannot_stand(change: dict[str, object]) -> None:
    """A command with one such rule changes nothing."""
    fields = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    bad = Acl(**{**fields, **change})  # type: ignore[arg-type]
    assert objection(bad)
    access = Access()
    assert isinstance(access.put_acls(PutAcls((GOOD, bad))), Refused)
    assert list(access.acls()) == []


@promise("S1")
def test_users_and_rules_survive_the_ledger_and_a_checkpoint() -> None:
    """Through encoded records, and through an image; secrets show in no representation."""
    commands = [
        PutAcls((GOOD,)),
        PutUser("alice", 1, 4096, b"salt", b"stored-key", b"server-key"),
        PutUser("alice", 2, 8192, b"salt2", b"stored-key-2", b"server-key-2"),
        DropUser("alice", 1),
        PutUser("bob", 1, 100, b"s", b"k", b"k"),
        DropUser("nobody", 1),
    ]
    state = ClusterState()
    record = decode(encode(Record(7, 1, 1000, 1000, commands)))
    results = state.apply(Position(1), record)
    assert results is not None
    assert [isinstance(result, Done) for result in results] == [True, True, True, True, False, False]
    other = ClusterState()
    other.restore(state.image())
    assert other.image() == state.image()
    assert list(other.access.users) == ["alice"] and list(other.access.users["alice"]) == [2]
    assert other.access.pepper == state.access.pepper != b""
    shown = repr(record) + repr(other.access.users) + repr(other.access)
    assert "stored-key" not in shown and "server-key" not in shown


@promise("S2", "M1")
def test_digests_do_not_depend_on_who_made_a_rule() -> None:
    """A process that wrote a record and one that read it have the same digest."""
    record = Record(7, 1, 1000, 1000, [PutAcls((GOOD,)), DropAcls((GOOD,)), PutUser("a", 1, 4096, b"s", b"k", b"k")])
    written, read = ClusterState(), ClusterState()
    assert written.apply(Position(1), record) == read.apply(Position(1), decode(encode(record)))
    assert written.digest == read.digest != 0


@promise("S2")
def test_the_guard_forgets_when_rules_change() -> None:
    """Super users are bound by nothing, others by the rules of the moment."""
    from headwater.security.guard import Guard

    access = Access()
    guard = Guard(Security(acls=True, super_users="User:root; User:CN=a,O=b"), access)
    ask = ("1.1.1.1", Operation.READ, AclResource.TOPIC, "t")
    assert guard.may("User:root", *ask) and guard.may("User:CN=a,O=b", *ask)
    assert not guard.may("User:x", *ask)
    access.put_acls(PutAcls((GOOD,)))
    assert guard.may("User:x", *ask) and not guard.may("User:y", *ask)
    assert (
        guard.operations("User:x", "1.1.1.1", AclResource.TOPIC, "t") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    )
    access.drop_acls(DropAcls((GOOD,)))
    assert not guard.may("User:x", *ask)
    assert Guard(Security(acls=True, allow_without_acls=True), access).may("User:x", *ask)
    assert Guard(Security(), access).may("User:x", "h", Operation.ALTER, AclResource.CLUSTER, THE_CLUSTER)
