"""Any life of a classic group: members and coordinators that crash, and what members may rely on all the same."""

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.coordination.classic.members import JoinAnswer, SyncAnswer
from tests.support.soak import examples
from tests.unit.coordination.classic.story import SESSION, Story

PROMISES = ("K8",)

CLIENTS = 4
LOST = ("illegal_generation", "unknown_member_id", "fenced_instance_id")
COMMON, OWN = ("common", b"c"), ("own", b"o")


@dataclass
class Client:
    """A member's program: what it was told last, and what it waits for."""

    number: int
    static: bool
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    joining: int | None = None
    syncing: int | None = None
    assigned: bytes | None = None

    @property
    def instance(self) -> str | None:
        return f"i{self.number}" if self.static else None

    def reset(self) -> None:
        self.member_id, self.generation, self.leads, self.assigned = "", -1, (), None
        self.joining = self.syncing = None


class Life(RuleBasedStateMachine):
    """Clients that do as clients do, or die; coordinators that do."""

    @initialize(delay=st.sampled_from([0, 3_000]), statics=st.integers(0, 2))
    def begin(self, delay: int, statics: int) -> None:
        self.story = Story(delay_ms=delay)
        self.clients = [Client(number, number < statics) for number in range(CLIENTS)]
        self.generations: dict[int, tuple[str, str | None]] = {}
        """Who leads a generation, by instance or id, and its protocol."""
        self.brought: dict[int, dict[str, bytes]] = {}

    def client(self, number: int) -> Client:
        return self.clients[number]

    # --- what clients do ---------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), own=st.booleans(), needs_id=st.booleans())
    def joins(self, number: int, own: bool, needs_id: bool) -> None:
        client = self.client(number)
        if client.joining is not None or client.syncing is not None:
            return
        client.assigned = None
        client.joining = self.story.join(
            client.member_id,
            instance_id=client.instance,
            protocols=[OWN, COMMON] if own else [COMMON],
            needs_id=needs_id,
        )
        self.hear()

    @rule(number=st.integers(0, CLIENTS - 1))
    def syncs(self, number: int) -> None:
        client = self.client(number)
        if client.generation < 0 or client.joining is not None or client.syncing is not None:
            return
        brought = {}
        if client.leads:
            brought = {name: f"{client.generation} {name}".encode() for name in client.leads}
            self.brought.setdefault(client.generation, {}).update(brought)
        client.syncing = self.story.sync(client.member_id, client.generation, brought, instance_id=client.instance)
        self.hear()

    @rule(number=st.integers(0, CLIENTS - 1))
    def beats(self, number: int) -> None:
        client = self.client(number)
        if client.generation < 0 or client.joining is not None:
            return
        code = self.story.beat(client.member_id, client.generation, client.instance)
        assert code in (
            "none",
            "rebalance_in_progress",
            "illegal_generation",
            "unknown_member_id",
            "fenced_instance_id",
        )
        if code not in ("none", "rebalance_in_progress"):
            client.reset()

    @rule(number=st.integers(0, CLIENTS - 1))
    def leaves(self, number: int) -> None:
        client = self.client(number)
        if client.member_id:
            self.story.leave((client.member_id, client.instance))
            self.hear()
            client.reset()

    @rule(number=st.integers(0, CLIENTS - 1))
    def dies(self, number: int) -> None:
        self.client(number).reset()

    @rule(ms=st.sampled_from([10, 1_000, SESSION // 2, SESSION, 4 * SESSION]))
    def waits(self, ms: int) -> None:
        self.story.wait(ms)
        self.hear()

    @precondition(lambda self: self.story.stored[0])
    @rule()
    def coordinator_dies(self) -> None:
        """Whoever waits loses the connection and asks the next one."""
        self.story.fail_over()
        for client in self.clients:
            client.joining = client.syncing = None

    # --- what they are told ----------------------------------------------------------------------------

    def hear(self) -> None:
        for client in self.clients:
            if client.joining in self.story.answers:
                answer = self.story.answers[client.joining]
                client.joining = None
                self.told_joined(client, answer)
            if client.syncing in self.story.answers:
                answer = self.story.answers[client.syncing]
                client.syncing = None
                self.told_synced(client, answer)

    def told_joined(self, client: Client, answer: JoinAnswer) -> None:
        client.generation, client.leads = -1, ()
        if answer.code == "member_id_required":
            client.member_id = answer.member_id
        elif answer.code != "none":
            if answer.code != "rebalance_in_progress":
                client.reset()
        else:
            client.member_id, client.generation = answer.member_id, answer.generation
            if answer.members and not answer.skip_assignment:
                client.leads = tuple(name for name, *_ in answer.members)
            led_by = self.identity(answer.leader)
            first = self.generations.setdefault(answer.generation, (led_by, answer.protocol))
            assert first == (led_by, answer.protocol), "a generation that was given out twice"

    def identity(self, member_id: str) -> str:
        """A static member is the same under every id; its ids begin with its instance."""
        return member_id.split("-")[0] if member_id.startswith("i") else member_id

    def told_synced(self, client: Client, answer: SyncAnswer) -> None:
        if answer.code == "none":
            client.assigned = answer.assignment
            brought = self.brought.get(client.generation, {}).values()
            assert answer.assignment in (b"", *brought), "an assignment that no leader of this generation made"
        elif answer.code in ("unknown_member_id", "fenced_instance_id"):
            client.reset()
        else:
            client.generation = -1

    # --- what always holds ----------------------------------------------------------------------------

    @invariant()
    def assigned_members_of_one_generation_differ(self) -> None:
        held = [(c.generation, c.assigned) for c in getattr(self, "clients", []) if c.assigned]
        assert len(held) == len(set(held)), "two members with the same assignment"

    @invariant()
    def a_group_without_members_is_empty(self) -> None:
        if hasattr(self, "story"):
            group = self.story.group
            assert (group.state == "Empty") == (not group.members) or group.state == "PreparingRebalance"

    def teardown(self) -> None:
        """Whatever happened, clients that go on become a stable group."""
        if not hasattr(self, "story"):
            return
        for _ in range(60):
            for client in self.clients:
                self.go_on(client)
            self.story.wait(1_000)
            self.hear()
        assert self.story.group.state == "Stable"
        assert all(c.assigned for c in self.clients)
        assert {c.generation for c in self.clients} == {self.story.group.generation}

    def go_on(self, client: Client) -> None:
        if client.joining is not None or client.syncing is not None:
            return
        if client.generation >= 0 and client.assigned is not None:
            code = self.story.beat(client.member_id, client.generation, client.instance)
            if code == "none":
                return
            if code != "rebalance_in_progress":
                client.reset()
            client.generation = -1
        if client.generation < 0:
            self.joins(client.number, own=False, needs_id=True)
        else:
            self.syncs(client.number)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
