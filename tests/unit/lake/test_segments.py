"""A segment on its way into the store."""

import gc
import weakref

from headwater.clock import SystemChance
from headwater.lake import segments
from headwater.lake.segments import NewSegment
from headwater.lake.spark.executor import OPENED_LIMIT
from headwater.log.segment.write import decode_runs
from tests.support.batches import batch
from tests.support.promise import promise

PROMISES = ("T1",)


def written() -> NewSegment:
    data = batch([b"value"] * 10)
    segment = NewSegment()
    for piece in decode_runs(0, [(len(data).to_bytes(4, "big") + data, 0, -1)], 0, OPENED_LIMIT):
        segment.writer.add(0, piece)
    segment.writer.end_part()
    return segment


@promise("T1")
def test_facts() -> None:
    """What the ledger has to know is what was written."""
    segment = written()
    file = segment.close("_data/", SystemChance())
    assert file is not None
    assert (file.rows, file.groups, file.size) == (10, 1, sum(map(len, segment.pieces)))
    assert file.name.startswith("_data/")
    assert file.name.endswith(segments.SUFFIX)


@promise("T1")
def test_no_rows_no_file() -> None:
    """Nothing to tell of."""
    assert NewSegment().close("", SystemChance()) is None


@promise("T1")
def test_its_bytes_go_with_it() -> None:
    """A worker writes one segment after another for days; none may wait for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        segment = written()
        segment.close("", SystemChance())
        gone = weakref.ref(segment)
        del segment
        assert gone() is None
    finally:
        gc.enable()
