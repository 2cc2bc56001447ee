"""The Delta follower: repeats a topic table's journal in `_delta_log/`, exactly once.

It writes the log itself, each version with one create-only put. The version's `txn` has the journal sequence of the
table, in the same object as the files. So a repetition finds the earlier commit, and a second follower loses the race
for the number of the version. Checkpoints and the removal of old versions come after a commit; the next commit makes up
for one that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from headwater.errors import Damaged, ObjectMissing, Retriable
from headwater.lake.tables.delta.checkpoint import (
    HINT,
    RETENTION_MS,
    TableState,
    decode_checkpoint,
    encode_checkpoint,
    encode_hint,
)
from headwater.lake.tables.delta.columns import protocol_for, with_columns
from headwater.lake.tables.delta.log import (
    Action,
    Add,
    CommitInfo,
    Listing,
    Remove,
    Txn,
    action_path,
    add_action,
    checkpoint_name,
    commit_name,
    encode_commit,
    log_directory,
    objection,
    read_commit,
    remove_action,
    table_metadata,
)
from headwater.lake.tables.delta.statistics import Places, places_of, statistics
from headwater.lake.tables.follower import Batch, Expiry, Keeping, Standing, TableRef, Version, foreign_commit
from headwater.objects import ObjectStore
from headwater.state.commands.columns import Column
from headwater.state.commands.tables import Bounds
from headwater.state.streams.stored.typed import Columns
from headwater.state.streams.tables import DataFile, JournalEntry
from headwater.threads import Offload, inline

log = logging.getLogger("headwater.followers")
ATTEMPTS = 10
"""How often another writer may take the next version number before the commit fails."""
_OPERATIONS = {"WRITE": "append", "OPTIMIZE": "replace", "DELETE": "delete"}
_BY_SETTINGS = Expiry()


# --- what to commit, without I/O ---------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """What one version changes: everything after one journal sequence up to another."""

    after: int
    upto: int
    ms: int
    changes: bool = True
    """Whether rows that were decoded again are a change of data."""
    columns: tuple[Column, ...] = ()
    """The typed columns of the version."""
    grows: bool = False
    """Whether the version before may have had others."""
    rewrites: bool = False
    bounds: Mapping[int, Sequence[Bounds]] = field(default_factory=dict)
    """Bounds of columns, by the number of the file."""
    places: Places = field(default_factory=dict)
    adds: dict[str, Add] = field(default_factory=dict)
    removes: dict[str, Remove] = field(default_factory=dict)

    @property
    def operation(self) -> str:
        """The operation in the history of the table, for people."""
        if self.rewrites:
            return "REWRITE"
        if any(add.data_change for add in self.adds.values()):
            return "WRITE"
        if any(remove.data_change for remove in self.removes.values()):
            return "DELETE"
        return "OPTIMIZE" if self.adds or self.removes else "WRITE"

    def include(self, entry: JournalEntry, files: Mapping[int, DataFile]) -> None:
        """Add the next entry of the journal. A file that is added and removed again is in neither list."""
        gone = [files[number] for number in entry.removed]
        quiet = self._is_quiet(entry)
        moved = quiet and not any(self._is_new(file) for file in gone)
        self.rewrites = self.rewrites or entry.operation == "rewrite"
        for file in gone:
            path = action_path(file.name)
            if self.adds.pop(path, None) is None:
                self.removes[path] = remove_action(path, file.size, entry.ms, data_change=not quiet)
        for number in entry.added:
            self.show(files[number], data_change=not moved)
        self.upto, self.ms = entry.sequence, entry.ms

    def show(self, file: DataFile, *, data_change: bool) -> None:
        """Add a file."""
        stats = statistics(file, self.bounds.get(file.number, ()), self.places)
        add = add_action(file, stats, data_change=data_change)
        self.adds[add.path] = add

    def mixes(self, entry: JournalEntry, files: Mapping[int, DataFile]) -> bool:
        """Whether an entry cannot be in this version, because a file is marked only as a whole as having new rows.

        This is so for a merge of rows that are new in this version with rows of earlier versions, and for the removal
        of a merged file that is not committed yet.
        """
        gone = [files[number] for number in entry.removed]
        if self._is_quiet(entry):
            return len({self._is_new(file) for file in gone}) > 1
        return any(action_path(file.name) in self.adds and not self._is_new(file) for file in gone)

    def _is_quiet(self, entry: JournalEntry) -> bool:
        """Whether readers of changes do not have to know of an entry."""
        return entry.replaces or (entry.moves and not self.changes)

    def _is_new(self, file: DataFile) -> bool:
        add = self.adds.get(action_path(file.name))
        return add is not None and add.data_change


def steps(batch: Batch) -> Iterator[Step]:
    """The versions of a batch: one, unless new and old rows would mix."""
    step = _new_step(batch, batch.after, batch.after, batch.ms)
    for entry in batch.entries:
        if step.mixes(entry, batch.files):
            yield _with_columns(step, batch.columns)
            step = _new_step(batch, step.upto, step.upto, step.ms)
        step.include(entry, batch.files)
    step.upto = batch.upto
    yield _with_columns(step, batch.columns)


def _new_step(batch: Batch, after: int, upto: int, ms: int) -> Step:
    places = places_of(batch.columns.newest) if batch.bounds else {}
    return Step(after, upto, ms, batch.changes, bounds=batch.bounds, places=places)


def _with_columns(step: Step, columns: Columns) -> Step:
    """A step with the typed columns that hold at its end."""
    before, version = columns.at(step.after), columns.at(step.upto)
    step.columns, step.grows = columns.of(version), before != version
    return step


def step_to(batch: Batch, present: Mapping[str, Add]) -> Step:
    """Bring a table that shows `present` to exactly the batch's live files."""
    live = {action_path(file.name): file for file in batch.live}
    step = _with_columns(_new_step(batch, batch.after, batch.upto, batch.ms), batch.columns)
    step.grows, step.changes = True, True
    for path, add in present.items():
        if path not in live:
            step.removes[path] = remove_action(path, add.size, batch.ms, data_change=True)
    for path, file in live.items():
        if path not in present:
            step.show(file, data_change=True)
    return step


def app_id(table: TableRef) -> str:
    """The application whose version is the journal's sequence."""
    return f"headwater-{table.topic}"


def commit_actions(table: TableRef, step: Step, present: TableState | None) -> list[Action]:
    """The lines of a version. They depend on the journal and the log only, so a repeated step writes the same bytes.

    `present` is the state of the version before; None for the first. It is looked at only by steps that grow.
    """
    info = CommitInfo(
        timestamp=step.ms,
        operation=step.operation,
        operation_parameters={"journalAfter": str(step.after), "journalUpto": str(step.upto)},
        engine_info="headwater",
        is_blind_append=not step.removes,
    )
    actions = [
        Action(commit_info=info),
        Action(txn=Txn(app_id=app_id(table), version=step.upto, last_updated=step.ms)),
    ]
    if present is None:
        metadata = with_columns(table_metadata(str(table.topic), table.name, step.ms), step.columns)
        actions += [Action(protocol=protocol_for(step.columns)), Action(meta_data=metadata)]
    elif step.grows and present.meta is not None:
        metadata, protocol = with_columns(present.meta, step.columns), protocol_for(step.columns, present.protocol)
        actions += [Action(protocol=protocol)] if protocol != present.protocol else []
        actions += [Action(meta_data=metadata)] if metadata != present.meta else []
    actions += [Action(remove=remove) for remove in step.removes.values()]
    actions += [Action(add=add) for add in step.adds.values()]
    return actions


# --- the follower ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Log:
    """A table's log as it was found: its files, and the follower's progress in it."""

    listing: Listing
    cursor: int


class DeltaFollower:
    """See `headwater.lake.tables.follower.TableFollower`."""

    name = "delta"

    def __init__(
        self, store: ObjectStore, *, keep_versions: int = 50, max_age_ms: int = 0, offload: Offload = inline
    ) -> None:
        self._store = store
        self._offload = offload
        self._keeping = Keeping(max(1, keep_versions), max_age_ms)

    def __repr__(self) -> str:
        return f"<DeltaFollower over {self._store!r}, keeps {self._keeping.versions} versions>"

    async def standing(self, table: TableRef, location: str) -> Standing:
        return await self._standing(table, await self._open(table))

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        found = await self._open(table)
        if found.cursor < batch.upto:
            if batch.entries:
                for step in steps(batch):
                    found = await self._append(table, found, step)
            else:
                found = await self._bring(table, found, batch)
            try:
                found = await self._maintain(table, found)
            except Retriable as error:
                facts = {"follower": self.name, "table": table.root, "reason": str(error)}
                log.warning("a checkpoint is left to the next commit", extra=facts)
                found = await self._open(table)
        return await self._standing(table, found)

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        listing = (await self._open(table)).listing
        if listing.oldest < 0:
            return []
        wanted = sorted(v for v in listing.commits if v >= listing.oldest)
        paths = [_path(table, commit_name(version)) for version in wanted]
        found = []
        for version, path, data in zip(wanted, paths, await self._store.get_many(paths), strict=True):
            shown = _version(table, version, read_commit(path, data)) if data is not None else None
            if shown is not None:
                found.append(shown)
        return found

    async def expire(self, table: TableRef, location: str, expiry: Expiry = _BY_SETTINGS) -> Standing:
        found = await self._maintain(table, await self._open(table))
        return await self._standing(table, await self._shorten(table, found, expiry))

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        found = await self._open(table)
        return frozenset(unquote(path) for path in (await self._state(table, found.listing)).adds)

    async def close(self) -> None:
        """Nothing to release."""

    async def announce(self, table: TableRef, location: str) -> None:
        """Readers find the log by the table's root."""

    async def drop(self, table: TableRef, location: str) -> None:
        """Delete the newest files first, so that a crash leaves an older version of the table."""
        directory = log_directory(table.root)
        for path in sorted([info.path async for info in self._store.scan(directory)], reverse=True):
            await self._store.delete(path)

    # --- reading -------------------------------------------------------------------------------------

    async def _open(self, table: TableRef) -> _Log:
        """List the log and find Headwater's newest commit. Foreign commits after it must be harmless."""
        directory = log_directory(table.root)
        listing = Listing.of([info.path.removeprefix(directory) async for info in self._store.scan(directory)])
        version = listing.newest
        while version in listing.commits:
            path, data = await self._commit_of(table, version)
            sequence = sequence_in(table, read_commit(path, data))
            if sequence is not None:
                return _Log(listing, sequence)
            reason = objection(read_commit(path, data))
            if reason is not None:
                raise foreign_commit(
                    f"version {version} of the Delta table {table.root} is not Headwater's: {reason}",
                    f"Delete {path} and later files there, or all of {directory} to have the table written anew",
                )
            version -= 1
        if listing.newest < 0 or version < 0:
            return _Log(listing, 0)
        return _Log(listing, await self._checkpointed(table, listing.newest_checkpoint))

    async def _commit_of(self, table: TableRef, version: int) -> tuple[str, bytes]:
        path = _path(table, commit_name(version))
        try:
            return path, await self._store.get(path)
        except ObjectMissing as error:
            raise Retriable(f"{path} was removed while the log was read") from error

    async def _checkpoint_of(self, table: TableRef, version: int) -> list[Action]:
        path = _path(table, checkpoint_name(version))
        try:
            data = await self._store.get(path)
        except ObjectMissing as error:
            raise Retriable(f"{path} was removed while the log was read") from error
        return await self._offload(decode_checkpoint, path, data)

    async def _checkpointed(self, table: TableRef, version: int) -> int:
        """Headwater's journal sequence in a checkpoint, for when its commit is deleted."""
        if version < 0:
            raise Damaged(f"the log of the Delta table {table.root} lacks its beginning and has no checkpoint")
        return sequence_in(table, await self._checkpoint_of(table, version)) or 0

    async def _standing(self, table: TableRef, found: _Log) -> Standing:
        if not found.cursor:
            return Standing(0, 0, "")
        oldest = found.listing.oldest
        if oldest == found.listing.newest:
            return Standing(found.cursor, found.cursor, "")
        sequence = None
        if oldest in found.listing.commits:
            sequence = sequence_in(table, read_commit(*await self._commit_of(table, oldest)))
        if sequence is None and oldest in found.listing.checkpoints:
            sequence = await self._checkpointed(table, oldest)
        return Standing(found.cursor, sequence or 0, "")

    async def _state(self, table: TableRef, listing: Listing, upto: int | None = None) -> TableState:
        """The state of a version (by default the newest), from a checkpoint and the commits after it."""
        state, last = TableState(), listing.newest if upto is None else upto
        base = listing.checkpoint_up_to(last)
        if base >= 0:
            state.apply(await self._checkpoint_of(table, base))
        paths = [_path(table, commit_name(version)) for version in range(base + 1, last + 1)]
        for path, data in zip(paths, await self._store.get_many(paths), strict=True):
            if data is None:
                raise Retriable(f"{path} was removed while the log was read")
            state.apply(read_commit(path, data))
        return state

    # --- writing -------------------------------------------------------------------------------------

    async def _append(self, table: TableRef, found: _Log, step: Step) -> _Log:
        """Commit one version. Harmless versions of other writers may come in between."""
        for _ in range(ATTEMPTS):
            if found.cursor >= step.upto:
                return found
            if found.cursor != step.after:
                raise Retriable(f"the Delta table {table.root} is at {found.cursor}, not at {step.after}")
            version = found.listing.newest + 1
            present = await self._state(table, found.listing) if step.grows and version else TableState()
            actions = commit_actions(table, step, present if version else None)
            name, data = commit_name(version), encode_commit(actions)
            if await self._store.create(_path(table, name), [data]):
                return _Log(found.listing.grown(name), step.upto)
            found = await self._open(table)
        raise Retriable(f"other writers keep committing to the Delta table {table.root}")

    async def _bring(self, table: TableRef, found: _Log, batch: Batch) -> _Log:
        """Bring the table to the batch's live files, whatever it shows now."""
        state = await self._state(table, found.listing)
        return await self._append(table, found, step_to(batch, state.adds))

    async def _maintain(self, table: TableRef, found: _Log) -> _Log:
        """Write a checkpoint if one is due, and remove what no retained version needs."""
        listing = found.listing
        if listing.checkpoint_due:
            listing = await self._checkpoint(table, listing, listing.newest)
        return await self._remove(table, _Log(listing, found.cursor), self._keeping.versions)

    async def _shorten(self, table: TableRef, found: _Log, expiry: Expiry) -> _Log:
        """Remove versions that are too old, or that the expiry asks to drop.

        A version can be removed only if the next one has a checkpoint. If necessary, one is written for that.
        """
        listing = found.listing
        since = max(self._keeping.since(expiry.now_ms), min(expiry.before_ms, expiry.now_ms))
        first = listing.newest + 1 - min(expiry.keep or self._keeping.versions, self._keeping.versions)
        aged = await self._first_since(table, listing, since) if since > 0 else 0
        wanted = max(first if expiry.asked else 0, aged)
        if not 0 <= listing.oldest < wanted:
            return found
        base = listing.checkpoint_up_to(wanted)
        if base < wanted and (expiry.asked or base <= listing.oldest):
            listing = await self._checkpoint(table, listing, wanted)
        return await self._remove(table, _Log(listing, found.cursor), listing.newest + 1 - wanted)

    async def _first_since(self, table: TableRef, listing: Listing, ms: int) -> int:
        """The oldest version made at or after a time, or the newest one."""
        for version in sorted(v for v in listing.commits if v >= listing.oldest):
            actions = read_commit(*await self._commit_of(table, version))
            info = next((action.commit_info for action in actions if action.commit_info is not None), None)
            if info is not None and info.timestamp is not None and info.timestamp >= ms:
                return version
        return listing.newest

    async def _remove(self, table: TableRef, found: _Log, keep: int) -> _Log:
        """Remove files that none of the newest `keep` versions needs."""
        gone = found.listing.obsolete(keep)
        for name in gone:
            await self._store.delete(_path(table, name))
        return _Log(found.listing.without(gone), found.cursor)

    async def _checkpoint(self, table: TableRef, listing: Listing, version: int) -> Listing:
        """Write the whole state of a version, then the hint `_last_checkpoint` if this is the newest checkpoint."""
        state, name = await self._state(table, listing, version), checkpoint_name(version)
        newest = max((txn.last_updated or 0 for txn in state.txns.values()), default=0)
        actions = state.actions(removed_after=newest - RETENTION_MS)
        data = await self._offload(encode_checkpoint, actions)
        await self._store.create(_path(table, name), [data])
        if version > listing.newest_checkpoint:
            await self._store.put(_path(table, HINT), [encode_hint(version, actions, len(data))])
        return listing.grown(name)


def _path(table: TableRef, name: str) -> str:
    return log_directory(table.root) + name


def _version(table: TableRef, number: int, actions: Iterable[Action]) -> Version | None:
    """The version that one of Headwater's commits describes, from the lines before its files."""
    info = None
    for action in actions:
        info = action.commit_info or info
        if action.txn is not None and action.txn.app_id == app_id(table) and info is not None:
            kind = _OPERATIONS.get(info.operation or "", "overwrite")
            if kind == "append" and not info.is_blind_append:
                kind = "overwrite"
            after = (info.operation_parameters or {}).get("journalAfter")
            return Version(number, int(str(after or 0)) + 1, action.txn.version, kind)
    return None


def sequence_in(table: TableRef, actions: Iterable[Action]) -> int | None:
    """The journal sequence in one of Headwater's commits or checkpoints. Commits name it before their files."""
    name = app_id(table)
    return next((a.txn.version for a in actions if a.txn is not None and a.txn.app_id == name), None)
