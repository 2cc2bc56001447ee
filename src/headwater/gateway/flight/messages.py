"""Messages of Arrow Flight and Flight SQL: the few that are used, with the fields that are used.

Commands, actions and tickets of Flight SQL travel inside a `google.protobuf.Any`. `pack` and `unpack` do that.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from headwater.errors import BadInput
from headwater.ledger.protobuf import messages

SERVICE = "arrow.flight.protocol.FlightService"
_URL = "type.googleapis.com/arrow.flight.protocol.sql."

flight = messages(
    "headwater.flight",
    {
        "Handshake": ("uint64 protocol_version = 1", "bytes payload = 2"),
        "Criteria": ("bytes expression = 1",),
        "Descriptor": ("int32 type = 1", "bytes cmd = 2", "repeated string path = 3"),
        "Ticket": ("bytes ticket = 1",),
        "Endpoint": ("Ticket ticket = 1",),
        "Info": (
            "bytes schema = 1",
            "Descriptor flight_descriptor = 2",
            "repeated Endpoint endpoint = 3",
            "int64 total_records = 4",
            "int64 total_bytes = 5",
        ),
        "SchemaResult": ("bytes schema = 1",),
        "Empty": (),
        "Action": ("string type = 1", "bytes body = 2"),
        "ActionType": ("string type = 1", "string description = 2"),
        "Result": ("bytes body = 1",),
        "Data": (
            "Descriptor flight_descriptor = 1",
            "bytes data_header = 2",
            "bytes app_metadata = 3",
            "bytes data_body = 1000",
        ),
        "PutResult": ("bytes app_metadata = 1",),
        "CancelRequest": ("Info info = 1",),
        "CancelResult": ("int32 status = 1",),
        "OptionValue": ("optional string string_value = 1",),
        "Option": ("string key = 1", "OptionValue value = 2"),
        "SetOptions": ("repeated Option session_options = 1",),
        "OptionError": ("int32 value = 1",),
        "NamedError": ("string key = 1", "OptionError value = 2"),
        "SetOptionsResult": ("repeated NamedError errors = 1",),
        "Options": ("repeated Option session_options = 1",),
        "CloseResult": ("int32 status = 1",),
    },
)
"""Messages of Flight itself. A map is a repeated message of `key` and `value`."""

_TABLE = ("optional string catalog = 1", "optional string db_schema = 2", "string table = 3")
_STATEMENT = ("string query = 1", "optional bytes transaction_id = 2")
_HANDLE = ("bytes prepared_statement_handle = 1",)
_SQL = {
    "CommandGetSqlInfo": ("repeated uint32 info = 1",),
    "CommandGetXdbcTypeInfo": ("optional int32 data_type = 1",),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": ("optional string catalog = 1", "optional string db_schema_filter_pattern = 2"),
    "CommandGetTables": (
        "optional string catalog = 1",
        "optional string db_schema_filter_pattern = 2",
        "optional string table_name_filter_pattern = 3",
        "repeated string table_types = 4",
        "bool include_schema = 5",
    ),
    "CommandGetTableTypes": (),
    "CommandGetPrimaryKeys": _TABLE,
    "CommandGetExportedKeys": _TABLE,
    "CommandGetImportedKeys": _TABLE,
    "CommandGetCrossReference": ("string pk_table = 3", "string fk_table = 6"),
    "CommandStatementQuery": _STATEMENT,
    "CommandStatementUpdate": _STATEMENT,
    "CommandStatementIngest": (),
    "CommandStatementSubstraitPlan": (),
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "TicketStatementQuery": ("bytes statement_handle = 1",),
    "ActionCreatePreparedStatementRequest": _STATEMENT,
    "ActionCreatePreparedStatementResult": (
        "bytes prepared_statement_handle = 1",
        "bytes dataset_schema = 2",
        "bytes parameter_schema = 3",
    ),
    "ActionClosePreparedStatementRequest": _HANDLE,
    "ActionCancelQueryRequest": ("bytes info = 1",),
    "ActionCancelQueryResult": ("int32 result = 1",),
    "DoPutPreparedStatementResult": ("optional bytes prepared_statement_handle = 1",),
    "Any": ("string type_url = 1", "bytes value = 2"),
}
sql = messages("headwater.flight.sql", _SQL)
"""Messages of Flight SQL."""


def parsed(kind: Any, data: bytes) -> Any:
    """A message of some bytes. Raises `BadInput` if they are none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise BadInput(f"the bytes are no message {kind.DESCRIPTOR.name} of Arrow Flight") from None


def pack(name: str, **fields: Any) -> bytes:
    """A message of Flight SQL, inside an `Any`."""
    inner = getattr(sql, name)(**fields).SerializeToString()
    packed: bytes = sql.Any(type_url=_URL + name, value=inner).SerializeToString()
    return packed


def unpack(data: bytes) -> tuple[str, Any]:
    """The name of a message of Flight SQL, and the message. Raises `BadInput`."""
    outer = parsed(sql.Any, data)
    name = outer.type_url.rpartition("/")[2].rpartition(".")[2]
    if not outer.type_url.endswith(f"arrow.flight.protocol.sql.{name}") or name not in _SQL:
        raise BadInput(f"this is no message of Flight SQL that is known here: {outer.type_url[:100]!r}")
    return name, parsed(getattr(sql, name), outer.value)
