"""What an operator does with links: create, pause, resume, promote, delete. For the command line and HTTP alike.

`replica/links.py` carries each change out; this module says which links make sense and which changes an order means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headwater.client.references import Allowed, check_references
from headwater.coordination.common import GroupError
from headwater.coordination.regex import compiled
from headwater.errors import BadInput, ConfigError, Conflict, Exists, NotFound, NotReady
from headwater.replica.domains import Domains
from headwater.replica.links import Linking
from headwater.replica.replica import Replica
from headwater.replica.topics import Topics, check_name
from headwater.settings.links import Links
from headwater.state.cluster.links import Link, LinkedTopic, flaw_of
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.links import LinkPhase, LinkSpec

TRIES = 10
"""How often a change is tried that others overtake."""
PAUSED = "paused by an operator"
RESUMED = (LinkPhase.PAUSED, LinkPhase.STOPPED, LinkPhase.FINISHING, LinkPhase.PROMOTING)
"""Phases of topics that are copied again when their link is resumed."""
TOLD = 3
"""How many topics a text names."""
MAX_HOST = 255
MAX_PORT = 65_535
_TRUTH = {"true": True, "false": False}
_OPTIONS = {"accept.gap": "accept_gap", "configs": "configs"}


class LinkOptions(msgspec.Struct, frozen=True):
    """What a link does beside copying records."""

    accept_gap: bool = False
    """Whether to go on at the source's first record where the source has deleted records that were not copied yet."""
    configs: bool = False
    """Whether topics have some of the configs that they have in the source."""


def options_of(options: Mapping[str, str]) -> LinkOptions:
    """The options of a link by their names, `accept.gap` and `configs`. Raises `ConfigError` for others."""
    found: dict[str, bool] = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ConfigError(f"{name!r} is not an option of a link: {', '.join(_OPTIONS)}")
        if value not in _TRUTH:
            raise ConfigError(f"the option {name} of a link is true or false")
        found[_OPTIONS[name]] = _TRUTH[value]
    return LinkOptions(**found)


def check_spec(spec: LinkSpec) -> None:
    """Raise `BadInput` unless a link makes sense by itself. Nothing is asked or read."""
    if flaw := flaw_of(spec):
        raise BadInput(flaw)
    for address in spec.bootstrap:
        _check_address(address)
    if not spec.topics and not spec.patterns:
        raise BadInput("a link copies at least one topic: name topics or patterns")
    for topic in spec.topics:
        check_name(topic)
    for what, patterns in (("pattern", spec.patterns), ("group", spec.groups)):
        for pattern in patterns:
            try:
                compiled(pattern)
            except GroupError as error:
                reason = str(error).partition(" is not a valid regular expression: ")[2]
                raise BadInput(f"the {what} {pattern!r} is not a regular expression: {reason}") from None
    check_references(spec.security)
    options_of(spec.options)


def _check_address(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not 0 < len(host) <= MAX_HOST or not port.isascii() or not port.isdigit():
        raise BadInput(f"{address[:MAX_HOST]!r} is not an address of the form HOST:PORT")
    if not 0 < int(port[: len(str(MAX_PORT)) + 1]) <= MAX_PORT:
        raise BadInput(f"{address[:MAX_HOST]!r} has no valid port")


class LinkChanges:
    """Changes links for an operator."""

    def __init__(self, cluster: Replica[ClusterState], linking: Linking, allowed: Allowed) -> None:
        self._cluster = cluster
        self._linking = linking
        self._allowed = allowed

    @classmethod
    def of(cls, domains: Domains, settings: Links) -> LinkChanges:
        """Changes on behalf of a process."""
        topics = Topics(domains.cluster, domains, domains.chance)
        linking = Linking(domains.cluster, domains, topics, domains.chance)
        return cls(domains.cluster, linking, Allowed(settings.secret_directories, settings.secret_variables))

    def check_new(self, spec: LinkSpec) -> None:
        """Raise unless the cluster can take a new link."""
        self._check(spec)
        if spec.name in self._cluster.state.links.links:
            raise Exists(f"link {spec.name!r} exists already")

    async def create(self, spec: LinkSpec) -> Link:
        """Create a link."""
        self.check_new(spec)
        return await self._linking.put(spec, 0)

    async def ensure(self, spec: LinkSpec) -> Link:
        """Create a link, or give the link of that name these properties."""
        if spec.name not in self._cluster.state.links.links:
            return await self.create(spec)
        self._check(spec)
        changes = msgspec.structs.asdict(spec)
        return await self._change(changes.pop("name"), **changes)

    def _check(self, spec: LinkSpec) -> None:
        check_spec(spec)
        self._allowed.resolved(spec.security)

    async def pause(self, name: str, topics: Sequence[str] = ()) -> None:
        """Stop copying a whole link, or some of its topics."""
        if not topics:
            await self._change(name, paused=True)
            return
        for found in self._chosen(name, topics):
            if found.copied:
                await self._linking.change(found, LinkPhase.PAUSED, PAUSED)

    async def resume(self, name: str, topics: Sequence[str] = (), *, accept_gap: bool | None = None) -> None:
        """Copy again: the link, and its topics (or the named ones) that are paused, stopped or being promoted.

        A topic that was promoted is copied again only if it is named, and nothing was written to it since. `accept_gap`
        sets the option of the link; None leaves it as it is.
        """
        self._chosen(name, topics)
        changes: dict[str, Any] = {} if topics else {"paused": False}
        if accept_gap is not None:
            options = self._linking.get(name).spec.options
            changes["options"] = {**options, "accept.gap": "true" if accept_gap else "false"}
        if changes:
            await self._change(name, **changes)
        for found in self._chosen(name, topics):
            if found.phase in RESUMED or (topics and not found.mirrored):
                await self._linking.change(found, LinkPhase.COPYING)

    async def promote(
        self, name: str, topics: Sequence[str] = (), *, finish: bool = False, force: bool = False
    ) -> None:
        """Begin to make topics of a link ordinary ones, which producers write on. `is_promoted` says when it is done.

        A link process copies the offsets of groups for the last time, and promotes the topics. With `finish` it copies
        all that the source has now before that. With `force`, and for a link without groups, they are promoted here
        and now.
        """
        link, chosen = self._linking.get(name), self._chosen(name, topics)
        if finish:
            self._check_finish(link, chosen, force=force)
        phase = LinkPhase.PROMOTING if link.spec.groups and not force else LinkPhase.PROMOTED
        for found in chosen:
            if not found.mirrored:
                await self._linking.carry_through(found)
            elif finish and found.phase is LinkPhase.COPYING:
                await self._linking.change(found, LinkPhase.FINISHING)
            elif not finish and found.phase is not phase:
                await self._linking.change(found, phase)

    async def is_promoted(self, name: str, topics: Sequence[str] = ()) -> bool:
        """Whether topics of a link take records of producers now."""
        await self._cluster.barrier()
        chosen = self._chosen(name, topics)
        if any(found.mirrored for found in chosen):
            return False
        for found in chosen:
            await self._linking.carry_through(found)
        return True

    def promotion_words(self, name: str, topics: Sequence[str] = ()) -> str:
        """What a promotion that was begun still waits for, for people."""
        state = self._cluster.state
        waiting = [found for found in self._chosen(name, topics) if found.mirrored]
        named = [(state.topics[found.topic].name, found.phase.name.lower()) for found in waiting[:TOLD]]
        listed = ", ".join(f"{topic} is {phase}" for topic, phase in named)
        more = f" and {len(waiting) - TOLD} more" if len(waiting) > TOLD else ""
        return (
            f"{listed}{more}. A link process goes on with it as soon as it runs and the source answers. "
            "`headwater link describe` shows how far it is, `resume` takes it back, `promote --force` does not wait."
        )

    def _check_finish(self, link: Link, chosen: Sequence[LinkedTopic], *, force: bool) -> None:
        """Raise unless link processes can copy topics up to the source's end."""
        if force:
            raise BadInput("a promotion either waits for what the source has, or is forced")
        if link.spec.paused:
            raise Conflict(f"link {link.name!r} is paused: resume it, or promote it without waiting for the source")
        for found in chosen:
            if found.phase in (LinkPhase.PAUSED, LinkPhase.STOPPED):
                topic = self._cluster.state.topics[found.topic].name
                raise Conflict(
                    f"topic {topic!r} is {found.phase.name.lower()}: resume it, or promote it without waiting for the "
                    "source"
                )

    async def delete(self, name: str) -> None:
        """Delete a link whose topics are all promoted or deleted."""
        self._linking.get(name)
        standing = sum(found.mirrored for found in self._cluster.state.links.of(name))
        if standing:
            raise Conflict(f"link {name!r} has {standing} topics: promote or delete them first")
        await self._linking.drop(name)

    def _chosen(self, name: str, topics: Sequence[str]) -> list[LinkedTopic]:
        """The topics of a link by their names here; all of them if none is named."""
        self._linking.get(name)
        state = self._cluster.state
        named = {state.topics[linked.topic].name: linked for linked in state.links.of(name)}
        for topic in topics:
            if topic not in named:
                raise NotFound(f"link {name!r} has no topic {topic!r}")
        return [named[topic] for topic in dict.fromkeys(topics or sorted(named))]

    async def _change(self, name: str, **changes: Any) -> Link:
        """Change properties of a link, whatever else others change meanwhile."""
        for _ in range(TRIES):
            known = self._linking.get(name)
            spec = msgspec.structs.replace(known.spec, **changes)
            if spec == known.spec:
                return known
            try:
                return await self._linking.put(spec, known.version)
            except Conflict:
                continue
        raise NotReady(f"link {name!r} is being changed by others: try again")
