"""Options of the Spark source: what they mean, and that a wrong one is refused with a clear word."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from headwater.errors import BadInput, ConfigError
from headwater.query.scan import schema_of
from headwater.query.wanted import FOREVER
from headwater.spark.options import SPLIT_BYTES, Bound, checked, options_of

PLAIN = {"url": "http://127.0.0.1:8081", "topic": "orders"}


def test_defaults() -> None:
    found = options_of({"url": PLAIN["url"], "path": "orders"}, streaming=False)
    assert found.topic == "orders" and found.partitions is None and found.split_bytes == SPLIT_BYTES
    assert found.start == Bound(0) and found.end == Bound(FOREVER) and found.fail_on_loss
    wanted = found.wanted
    assert wanted.from_offset == 0 and wanted.until_offset == FOREVER and wanted.version is None and not wanted.kept


def test_what_the_options_mean() -> None:
    found = options_of(
        {
            **PLAIN, "partitions": "3, 1", "STARTINGOFFSETS": '{"1": 17}', "endingOffsets": "40", "version": "7",
            "startingTimestamp": "2026-01-01T00:00:00+00:00", "endingTimestamp": "1767225600001", "splitBytes": "5",
            "user": "me", "password": "secret",
        },
        streaming=False,
    )  # fmt: skip
    wanted = found.wanted
    assert wanted.partitions == [1, 3] and wanted.from_offsets == {1: 17} and wanted.from_offset == 0
    assert wanted.until_offset == 40 and wanted.version == 7 and found.split_bytes == 5
    assert (wanted.from_ms, wanted.until_ms) == (1767225600000, 1767225600001)
    assert "secret" not in repr(found)
    stream = options_of({**PLAIN, "startingOffsets": "Latest", "maxRowsPerBatch": "9", "failOnDataLoss": "false"})
    assert stream.from_end and stream.max_rows == 9 and not stream.fail_on_loss


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"topik": "x"}, "no option 'topik': the options are url"),
        ({"url": ""}, "give the options `url`"),
        ({"topic": ""}, "give the options `url`"),
        ({"url": "ftp://x"}, "not the URL of a gateway"),
        ({"url": "http://example.com", "token": "t"}, "use https"),
        ({"user": "me"}, "`user` and `password`"),
        ({"partitions": "1,x"}, "partitions is '1,x'"),
        ({"partitions": "-1"}, "must not be negative"),
        ({"startingOffsets": "soon"}, "startingOffsets is 'soon'"),
        ({"startingOffsets": '{"0": -2}'}, "must not be negative"),
        ({"startingOffsets": "latest"}, "for `readStream` only"),
        ({"startingTimestamp": "2026-01-01"}, "no time zone"),
        ({"version": "-1"}, "must not be negative"),
        ({"splitBytes": "0"}, "must be above 0"),
        ({"timeout": "nan"}, "must be above 0"),
        ({"maxRowsPerBatch": "5"}, "an option of `readStream` only"),
    ],
)
def test_what_is_refused(more: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of({**PLAIN, **more}, streaming=False)
    assert words in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="endingOffsets is an option of `read` only"):
        options_of({**PLAIN, "endingOffsets": "5"}, streaming=True)
    with pytest.raises(ConfigError, match="true or false"):
        options_of({**PLAIN, "failOnDataLoss": "no"}, streaming=True)


def test_columns_keep_their_types() -> None:
    own = schema_of(["headers"]).field(0).type
    inner = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
    log = schema_of()
    chosen = pa.schema([("value", pa.binary()), ("headers", pa.list_(pa.field("item", inner)))])
    assert checked(chosen, log) is chosen and checked(pa.schema([("headers", own)]), log).names == ["headers"]
    with pytest.raises(ConfigError, match="value has the type binary, not string: cast it"):
        checked(pa.schema([("value", pa.string())]), log)
    with pytest.raises(ConfigError, match="headers has the type"):
        checked(pa.schema([("headers", pa.list_(pa.struct([inner.field(0)])))]), log)
    with pytest.raises(BadInput, match="no column 'amount'"):
        checked(pa.schema([("amount", pa.int32())]), log)


def test_fields_of_typed_columns() -> None:
    """Some of them may be chosen, at every level."""

    def data(*fields: tuple[str, pa.DataType]) -> pa.DataType:
        return pa.list_(pa.map_(pa.string(), pa.struct(fields)))

    own = pa.schema([("value_data", data(("a", pa.int64()), ("b", pa.string())))])
    for kind in (data(("b", pa.string())), data(("b", pa.string()), ("a", pa.int64()))):
        assert checked(pa.schema([("value_data", kind)]), own).types == [kind]
    for kind in (data(("a", pa.string())), data(("c", pa.int64())), pa.list_(pa.string()), pa.string()):
        with pytest.raises(ConfigError, match="value_data has the type"):
            checked(pa.schema([("value_data", kind)]), own)
