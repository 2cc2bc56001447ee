"""Errors: the kinds are in one tree, and each server has a row for every kind."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import grpc
import pytest
from kio.schema.errors import ErrorCode

import headwater
from headwater import errors
from headwater.broker.errors import CODES as KAFKA
from headwater.broker.errors import Coded, code_of, coordinator_code_of
from headwater.cli.errors import CODES as EXIT
from headwater.errors import HeadwaterError, SchemaReason
from headwater.gateway.flight.errors import STATUSES as FLIGHT
from headwater.gateway.flight.errors import told
from headwater.gateway.problems import CONFLICT, ERRORS, SCHEMA_CODES, Refusal

SOURCE = Path(headwater.__file__).parent
TABLES: Mapping[str, Mapping[type[HeadwaterError], object]] = {
    "broker/errors.py": KAFKA,
    "gateway/problems.py": ERRORS,
    "gateway/flight/errors.py": FLIGHT,
    "cli/errors.py": EXIT,
}
PROTOCOLS = {
    "client.errors": "what Kafka's codes mean, for callers of the client",
    "wire.scram": "each side of a log-in words it on its own",
    "log.wal.zone_cache": "how a place of objects beside the store reports to the reader that then asks the store",
}
"""Modules whose own errors other rooms catch."""


def every_error(kind: type[HeadwaterError] = HeadwaterError) -> Iterator[type[HeadwaterError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from every_error(derived)


KINDS = sorted({kind for kind in every_error() if kind.__module__ == errors.__name__}, key=lambda kind: kind.__name__)


def missing(table: Mapping[type[HeadwaterError], object]) -> list[str]:
    return [kind.__name__ for kind in KINDS if kind not in table]


@pytest.mark.parametrize("table", TABLES)
def test_every_kind_has_a_row_of_its_own(table: str) -> None:
    rows = TABLES[table]
    assert len(KINDS) > 40 and not missing(rows), f"{table} has no row for them"
    assert missing({kind: row for kind, row in rows.items() if kind is not errors.Exists}) == ["Exists"]
    own = f"headwater.{table[:-3].replace('/', '.')}"
    assert {kind.__module__ for kind in rows} <= {errors.__name__, own}, "a row for no kind"


def test_every_reason_of_the_schema_registry_has_a_number() -> None:
    assert set(SCHEMA_CODES) == set(SchemaReason)
    assert len(set(SCHEMA_CODES.values())) == len(SCHEMA_CODES)


def test_a_room_refines_kinds_for_itself_only() -> None:
    """What another room may catch is a kind of the tree."""
    for module in pkgutil.walk_packages([str(SOURCE)], "headwater."):
        if not module.name.endswith(("__main__", ".protoc")):
            import_module(module.name)
    own = {
        (kind.__module__.removeprefix("headwater."), kind.__name__)
        for kind in every_error()
        if kind.__module__.startswith("headwater.") and kind.__module__ != errors.__name__
    }
    assert len(own) > 30
    caught = set()
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(f"headwater.{room}"):
                caught |= {(node.module.removeprefix("headwater."), alias.name) for alias in node.names}
    abroad = {(module, name) for module, name in own & caught if module not in PROTOCOLS}
    assert not abroad, "move them to `headwater/errors.py`, with a row in each table"


CHOSEN_IN_WORDS = {"Exists"}
"""Metadata answers LEADER_NOT_AVAILABLE for a topic that another client creates just now."""


def test_no_handler_of_kafka_chooses_a_code_by_a_class() -> None:
    """Handlers catch errors by what the caller must do, and take the code from the table."""
    general = {"HeadwaterError", "BadInput", "Retriable", "NotAuthenticated", *CHOSEN_IN_WORDS}
    kinds = {kind.__name__ for kind in KINDS} - general
    found = []
    for path in (SOURCE / "broker" / "handlers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                names = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)}
                found += [(path.name, name) for name in names & kinds]
    assert not found


def test_the_row_of_a_refinement_is_that_of_its_kind() -> None:
    class Own(errors.StoreFull):
        pass

    assert code_of(Own("x")) is ErrorCode.kafka_storage_error
    assert code_of(HeadwaterError("x")) is ErrorCode.unknown_server_error


def test_codes_that_only_kafka_has() -> None:
    refused = Coded(ErrorCode.invalid_replication_factor, "x")
    assert code_of(refused) is coordinator_code_of(refused) is ErrorCode.invalid_replication_factor
    assert coordinator_code_of(errors.NotReady("x")) is ErrorCode.coordinator_not_available
    assert coordinator_code_of(errors.Damaged("x")) is ErrorCode.coordinator_not_available
    assert coordinator_code_of(errors.BadInput("x")) is ErrorCode.invalid_request


def test_statuses_of_flight_sql_are_those_of_grpc() -> None:
    assert set(FLIGHT.values()) <= {status.name for status in grpc.StatusCode}


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (errors.Conflict("it moved"), "ABORTED", "it moved"),
        (Refusal(CONFLICT, "it moved"), "ABORTED", "it moved"),
        (errors.Exists("there is a query a"), "ALREADY_EXISTS", "there is a query a"),
        (errors.QueryCancelled("by ann"), "CANCELLED", "by ann"),
        (errors.LimitReached("at most 3"), "FAILED_PRECONDITION", "at most 3"),
        (errors.Damaged("x"), "DATA_LOSS", "x"),
        (errors.StoreFull("x"), "UNAVAILABLE", "x"),
        (errors.Halted("a secret"), "INTERNAL", "The gateway failed"),
        (RuntimeError("a secret"), "INTERNAL", "The gateway failed"),
    ],
)
def test_statuses_of_flight_sql(error: Exception, status: str, words: str) -> None:
    assert told(error) == (status, words)
