"""One statement from the command line: asked, shown in the chosen form, and cancelled by Ctrl-C."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.cli.sql.wishes import SqlOutput, Wish
from headwater.clock import Chance, Clock, SystemChance, SystemClock
from headwater.errors import HeadwaterError
from headwater.gateway.results.forms import About, Form, columns_of, writer_of
from headwater.sdk.asking import body_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sdk.remote import RemoteConnection
    from headwater.sdk.result import Result

Put = Callable[[bytes], None]
PutLines = Callable[[Iterator[str]], None]
Watch = Callable[[str], contextlib.AbstractContextManager[None]]
"""Shows the progress of the query with an id until the block ends."""


@dataclass(slots=True)
class Asker:
    """Asks a gateway and prints what it answers."""

    cluster: RemoteConnection
    put: Put
    put_lines: PutLines
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)
    watch: Watch | None = None

    def ask(self, sql: str, wish: Wish) -> None:
        """Ask a statement and print its result. Ctrl-C cancels it at the gateway."""
        began = self.clock.monotonic()
        body = body_of(sql, wish.parameters, wish.engine, None, wish.timeout)
        if wish.as_of is not None:
            body["as_of"] = wish.as_of
        with contextlib.ExitStack() as watching:
            if self.watch is not None:
                body["id"] = self.chance.uuid().hex
                watching.enter_context(self.watch(body["id"]))
            with self.cluster.ask(body) as result:
                try:
                    batches = result.batches()
                    first = list(itertools.islice(batches, 1))
                    watching.close()  # what is printed now needs the line
                    self._print(result, itertools.chain(first, batches), wish)
                except KeyboardInterrupt:
                    cancel(result)
                    raise
        if result.notes:
            print(f"Note: {result.notes}", file=sys.stderr)
        if wish.timing:
            told = f"Time: {(self.clock.monotonic() - began) * 1000:.1f} ms ({result.engine})"
            self.put_lines(iter([told]))

    def _print(self, result: Result, batches: Iterable[pa.RecordBatch], wish: Wish) -> None:
        from headwater.cli.sql.tables import lines_of

        if wish.output is SqlOutput.TABLE:
            self.put_lines(lines_of(result.schema, batches, expanded=wish.expanded, most=wish.most))
            return
        about = About(
            query=result.query_id,
            engine=result.engine,
            reason=result.reason,
            versions=dict(result.versions),
            columns=columns_of(result.schema),
            notes=[result.notes] if result.notes else [],
        )
        for piece in pieces(Form(wish.output), result.schema, about, batches):
            self.put(piece)


def pieces(form: Form, schema: pa.Schema, about: About, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """A result in a form, piece by piece."""
    writer = writer_of(form, schema, about)
    yield writer.begin()
    for batch in batches:
        yield from (writer.rows(part) for part in writer.parts(batch))
    yield writer.end()


def cancel(result: Result) -> None:
    """Cancel a query. If the gateway cannot be reached, it notices that its client has left."""
    try:
        result.cancel()
    except HeadwaterError:
        pass  # the connection is closed next, which cancels as well
