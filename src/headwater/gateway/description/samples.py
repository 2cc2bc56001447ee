"""The examples of the OpenAPI document: requests with their answers, at least one for each call.

They are in an order in which they can be sent to an empty cluster with rules. A test does so, and compares the answers.
"""

from __future__ import annotations

from headwater.gateway.description.registry_samples import REGISTRY_SAMPLES
from headwater.gateway.description.sample import Sample
from headwater.gateway.records.bodies import NDJSON
from headwater.gateway.records.forms import Form

NEXT = "kwAA"
"""A position in a log. Real ones are longer."""
QUERY = "b5f0f2c6f34f4c54a1d3b1f3a9b0c7d2"
"""The id of a query."""
_ID = "0b6ff7a7-5b1c-4b1e-9d2c-0f5b7f8f6a11"
_MS = 1_767_225_600_000
_ORDERS = {"name": "orders"}
_TABLE = {
    "topic": "orders", "version": 1, "rows": 5, "files": 1, "bytes": 2120, "pending_records": 0, "held_records": 0,
    "freshness_seconds": 0.0,
}  # fmt: skip
_QUERY = {
    "id": QUERY, "asker": "User:ann", "sql": "SELECT count(*) AS records FROM orders",
    "engine": "duckdb", "reason": "DuckDB answers queries of this size.", "versions": {"orders": 1}, "phase": "done",
    "percent": 100.0, "rows": 1, "result_bytes": 8, "files": 1, "file_bytes": 2120, "hot_bytes": 0, "seconds": 0.02,
    "error": "",
}  # fmt: skip
_RULE = {
    "resource": "TOPIC", "name": "orders", "pattern": "LITERAL", "principal": "User:ann", "host": "*",
    "operation": "READ", "permission": "ALLOW",
}  # fmt: skip
_TRANSACTION = {
    "id": "payments-1", "state": "Ongoing", "producer": 4001, "epoch": 0, "started_ms": _MS, "timeout_ms": 60_000,
}  # fmt: skip
_RECORD = {"partition": 0, "offset": 0, "timestamp": _MS, "key": "c1", "value": '{"amount":5}'}
_LINK = {
    "name": "old", "source": ["127.0.0.1:9192"], "state": "paused", "created_ms": _MS, "topics": ["payments"],
    "patterns": ["shop[.].*"], "groups": ["shop-.*"], "options": {"configs": "true"},
    "security": {
        "security.protocol": "SASL_SSL", "sasl.username": "copier", "sasl.password.file": "/etc/headwater/old.password",
    },
    "linked": [
        {
            "topic": "payments", "source": "payments", "source_id": _ID, "state": "copying", "reason": "",
            "since_ms": _MS, "generation": 2, "starts": [0, 0], "ends": [1200, 1180],
            "source_ends": [1200, 1190], "source_ends_ms": _MS, "lag": 10,
        }
    ],
}  # fmt: skip
_NEW_LINK = {name: value for name, value in _LINK.items() if name not in ("state", "created_ms", "linked")}
_PAGE = {"records": [_RECORD], "next": NEXT}
_PLACE = {"topic": "orders", "partition": 0, "offset": 0}


SAMPLES: tuple[Sample, ...] = (
    # --- cluster ---------------------------------------------------------------------------------------
    Sample(
        "describeCluster", "cluster", "What runs here",
        answer={"product": "headwater", "version": "0.1.0", "cluster_id": "p0Yt7kBxQ2mSx1uSg0lLsA", "level": 3},
    ),
    Sample("health", "healthy", "A gateway that serves", answer={"status": "healthy"}),
    Sample(
        "describeProcesses", "processes", "A broker, a compactor and a gateway",
        answer={
            "cluster_id": "p0Yt7kBxQ2mSx1uSg0lLsA", "level": 3, "known_level": 3, "topics": 0, "partitions": 0,
            "groups": 0, "ledger": "sqlite:///data/ledger", "objects": "file:///data/objects",
            "brokers": [
                {
                    "node": 1, "role": "broker", "zone": "", "addresses": {"PLAINTEXT": "127.0.0.1:9092"}, "epoch": 1,
                    "version": "0.1.0", "level": 3, "beating": None, "degraded": False, "publish_us": 900,
                    "fetch_us": 700,
                }
            ],
            "processes": [
                {
                    "node": None, "role": "other", "zone": "", "addresses": {}, "epoch": 2, "version": "0.1.0",
                    "level": 3, "beating": None, "degraded": None, "publish_us": None, "fetch_us": None,
                }
            ],
            "domains": [{"domain": 0, "position": 12, "clock_ms": _MS, "level": 3}],
            "leases": [{"domain": 1, "name": "compaction", "holder": 3, "node": None, "runs_out_in_ms": 9000}],
            "holds": [{"domain": 1, "epoch": 2, "age_ms": 4000, "keeps": True, "versions": 0}],
            "health": "healthy",
        },
    ),
    Sample(
        "upgradeCluster", "checked", "Check whether the newest level is possible",
        query={"validate_only": "true"}, body={}, answer={"level": 3},
    ),
    # --- topics ----------------------------------------------------------------------------------------
    Sample(
        "createTopic", "checked", "Check a topic only", query={"validate_only": "true"},
        body={"name": "orders"}, answer={"name": "orders", "partitions": 1},
    ),
    Sample(
        "createTopic", "created", "Three partitions, records kept for a day", status=201,
        body={"name": "orders", "partitions": 3, "configs": {"retention.ms": "86400000"}},
        answer={"name": "orders", "partitions": 3, "id": _ID},
    ),
    Sample(
        "settleTable", "settled", "All records are in the tables", path=_ORDERS,
        answer={
            "topic": "orders", "settled": True, "version": 0, "pending_records": 0, "held_records": 0,
            "poll": "/v1/tables/orders", "compactor": "",
        },
    ),
    Sample(
        "listTopics", "first", "The first page", query={"limit": 10},
        answer={"items": [{"name": "orders", "id": _ID, "partitions": 3}]},
    ),
    Sample(
        "addPartitions", "added", "Six partitions in all", path=_ORDERS, body={"partitions": 6},
        answer={"name": "orders", "partitions": 6, "id": _ID},
    ),
    Sample(
        "alterTopicConfigs", "altered", "Set one config and reset another", path=_ORDERS,
        body={"set": {"max.message.bytes": "2000000"}, "reset": ["retention.ms"]},
        answer={"configs": {"max.message.bytes": "2000000"}},
    ),
    Sample(
        "listTopicConfigs", "one", "The first config", path=_ORDERS, query={"limit": 1},
        answer={
            "items": [
                {
                    "name": "cleanup.policy", "value": "delete", "source": "default", "type": "list",
                    "meaning": "What happens to old records.",
                }
            ],
            "next": "WyJjb25maWdzIiwiY2xlYW51cC5wb2xpY3kiXQ",
        },
    ),
    Sample(
        "resetTopicConfig", "reset", "Back to the default", status=204,
        path={"name": "orders", "config": "max.message.bytes"},
    ),
    *REGISTRY_SAMPLES,
    # --- records ---------------------------------------------------------------------------------------
    Sample(
        "appendRecords", "records", "Two records, and what must hold for them", path=_ORDERS,
        headers={"Idempotency-Key": "order-4711"},
        body={
            "records": [{"partition": 0, "key": "c1", "value": {"amount": 5}}, {"partition": 0, "value": "text"}],
            "expected_offset": 0,
        },
        answer={
            "partitions": [{"partition": 0, "first_offset": 0, "last_offset": 1}],
            "records": [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}],
        },
    ),
    Sample(
        "appendRecords", "lines", "A record a line, and a short answer", path=_ORDERS, media=NDJSON[0],
        headers={"Prefer": "return=minimal"}, body='{"partition": 0, "value": 1}\n',
        answer={"partitions": [{"partition": 0, "first_offset": 2, "last_offset": 2}]},
    ),
    Sample(
        "appendRecords", "value", "The body is the value of one record", path=_ORDERS, media="text/plain",
        query={"key": "c1", "partition": 0}, body="hello",
        answer={
            "partitions": [{"partition": 0, "first_offset": 3, "last_offset": 3}],
            "records": [{"partition": 0, "offset": 3}],
        },
    ),
    Sample(
        "appendRecords", "bytes", "The body is the value of one record, any bytes", path=_ORDERS,
        media="application/octet-stream", query={"key_base64": "/w==", "partition": 0}, body="any bytes",
        answer={
            "partitions": [{"partition": 0, "first_offset": 4, "last_offset": 4}],
            "records": [{"partition": 0, "offset": 4}],
        },
    ),
    Sample(
        "appendRecords", "by-schema", "A value that is encoded by the newest schema of a subject", path=_ORDERS,
        body={"records": [{"partition": 1, "value": {"amount": 5}}], "value_schema": "orders-value"},
        answer={
            "partitions": [{"partition": 1, "first_offset": 0, "last_offset": 0}],
            "records": [{"partition": 1, "offset": 0}],
        },
    ),
    Sample("readTopic", "page", "One record", path=_ORDERS, query={"limit": 1}, answer=_PAGE),
    Sample(
        "readTopic", "lines", "A record a line", path=_ORDERS, query={"limit": 1},
        headers={"Accept": Form.NDJSON.value}, answer_media=Form.NDJSON.value,
        answer='{"partition":0,"offset":0,"timestamp":1767225600000,"key":"c1","value":"{\\"amount\\":5}"}\n',
    ),
    Sample(
        "readPartition", "range", "A range of offsets; JSON values are embedded",
        path={"name": "orders", "partition": 0}, query={"offset": "0", "until": 1, "format": "json"},
        answer={"records": [{**_RECORD, "value": {"amount": 5}}], "caught_up": True},
    ),
    Sample(
        "findRecord", "record", "The first record of a partition", path={"name": "orders", "partition": 0, "offset": 0},
        answer={"record": _RECORD, "tombstone": False, "read": {"requests": 0, "bytes": 0}},
    ),
    Sample(
        "findLatest", "by-key", "The newest record with a key", path=_ORDERS, query={"key": "c1"},
        answer={
            "record": {**_RECORD, "offset": 3, "value": "hello"}, "tombstone": False,
            "read": {"requests": 0, "bytes": 0},
        },
    ),
    Sample(
        "readAsGroup", "page", "From the committed offsets on", path={"group": "reports", "name": "orders"},
        query={"limit": 1}, answer=_PAGE,
    ),
    Sample(
        "commitPosition", "committed", "The records of an answer are done with",
        path={"group": "reports", "name": "orders"}, body={"next": NEXT},
        answer={"partitions": [{"partition": 0, "offset": 1}]},
    ),
    Sample(
        "scanTopic", "rows", "Two columns of the table, as an Arrow stream", path=_ORDERS,
        query={"columns": "offset,value"}, answer_media=Form.ARROW.value,
    ),
    # --- sql -------------------------------------------------------------------------------------------
    Sample(
        "askSql", "count", "A count, as JSON",
        body={"sql": "SELECT count(*) AS records FROM orders WHERE partition = ?", "parameters": [0]},
        answer={
            "query": QUERY, "engine": "duckdb", "reason": _QUERY["reason"], "versions": {"orders": 1},
            "columns": [{"name": "records", "type": "int64"}], "rows": [[5]], "row_count": 1,
        },
    ),
    Sample(
        "askSql", "values", "Fields of JSON values, as CSV", query={"format": "csv"}, answer_media="text/csv",
        body={"sql": "SELECT \"offset\", value->>'amount' AS amount FROM orders ORDER BY 1 LIMIT 1"},
    ),
    Sample("listQueries", "queries", "The newest queries", query={"limit": 10}, answer={"items": [_QUERY]}),
    Sample("describeQuery", "query", "A query that is done", path={"id": QUERY}, answer=_QUERY),
    Sample("cancelQuery", "cancelled", "A query ends", status=204, path={"id": QUERY}),
    Sample(
        "planScan", "parts", "A small topic is one part", path=_ORDERS,
        answer={
            "id": _ID, "version": 0, "partitions": [{"partition": 0, "kept": 0}],
            "parts": [{"bytes": 310, "ranges": [{"partition": 0, "from_offset": 0, "until_offset": 5}]}],
        },
    ),
    Sample(
        "deleteRecords", "trimmed", "Delete the first record of a partition", path=_ORDERS,
        body={"partitions": [{"partition": 0, "before": 1}]}, answer={"partitions": [{"partition": 0, "start": 1}]},
    ),
    Sample(
        "describeTopic", "topic", "Partitions with their offsets", path=_ORDERS,
        answer={
            "name": "orders", "id": _ID, "created_ms": _MS,
            "partitions": [{"partition": 0, "start": 1, "end": 5, "stable": 5, "settled": 0, "bytes": 310}],
            "configs": {}, "link": None, "retention_notice": "",
        },
    ),
    # --- groups ----------------------------------------------------------------------------------------
    Sample(
        "commitGroupOffsets", "committed", "A group continues at an offset", path={"group": "readers"},
        body={"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]},
        answer={"offsets": [{**_PLACE, "offset": 1}]},
    ),
    Sample(
        "listGroups", "first", "The first page", query={"limit": 10},
        answer={"items": [{"name": "readers", "kind": "none", "members": 0}]},
    ),
    Sample(
        "describeGroup", "group", "A group without members", path={"group": "readers"},
        answer={
            "name": "readers", "kind": "none", "state": "Empty", "protocol_type": "", "offsets": 1, "lag": 4,
            "members": [],
        },
    ),
    Sample(
        "listGroupOffsets", "offsets", "Offsets with their lag", path={"group": "readers"},
        answer={
            "items": [{**_PLACE, "offset": 1, "metadata": "", "committed_ms": _MS, "start": 1, "end": 5, "lag": 4,
                       "damage": ""}]
        },
    ),
    Sample(
        "resetGroupOffsets", "latest", "Continue at the end of the log", path={"group": "readers"},
        body={"topic": "orders", "to": "latest", "partitions": [0]}, answer={"offsets": [{**_PLACE, "offset": 5}]},
    ),
    Sample("deleteGroup", "deleted", "The group and its offsets", status=204, path={"group": "readers"}),
    # --- tables ----------------------------------------------------------------------------------------
    Sample(
        "settleTable", "under-way", "Ask, and do not wait", status=202, path=_ORDERS,
        answer={
            "topic": "orders", "settled": False, "version": 0, "pending_records": 4, "held_records": 0,
            "poll": "/v1/tables/orders", "compactor": "the compactor has not begun",
        },
    ),
    Sample("listTables", "first", "The first page", query={"limit": 10}, answer={"items": [_TABLE]}),
    Sample(
        "describeTable", "table", "A table and the catalogs that show it", path=_ORDERS,
        answer={
            **_TABLE, "location": "file:///data/objects/tables/orders", "oldest_version": 1, "held_by": [],
            "followers": [
                {
                    "name": "iceberg", "version": 1, "oldest": 1, "behind_seconds": 0.0,
                    "metadata": "tables/orders/metadata/v1.json",
                }
            ],
        },
    ),
    Sample(
        "listVersions", "versions", "What made each version", path=_ORDERS,
        answer={
            "items": [
                {"version": 1, "time_ms": _MS, "operation": "settle", "added": 1, "removed": 0, "ends": {"0": 5}}
            ]
        },
    ),
    Sample(
        "listFiles", "files", "The files of a version", path={"name": "orders", "version": 0},
        answer={
            "items": [
                {
                    "number": 1, "name": "data/1.parquet", "rows": 5, "bytes": 2120, "version": 1,
                    "partitions": [0, 0], "offsets": [0, 4],
                }
            ]
        },
    ),
    # --- dead letters ----------------------------------------------------------------------------------
    Sample(
        "createTopic", "dead-letters", "A topic for records that cannot be decoded", status=201,
        body={"name": "orders-failed", "partitions": 1}, answer={"name": "orders-failed", "partitions": 1, "id": _ID},
    ),
    Sample(
        "alterTopicConfigs", "dead-letters", "Values are JSON; records that are none go to a topic of their own",
        path=_ORDERS, body={"set": {"headwater.value.schema": "json", "headwater.dlq.topic": "orders-failed"}},
        answer={"configs": {"headwater.value.schema": "json", "headwater.dlq.topic": "orders-failed"}},
    ),
    Sample(
        "listDeadLetters", "topics", "Topics with records that could not be decoded", query={"limit": 10},
        answer={
            "items": [{"topic": "orders", "dead_letter_topic": "orders-failed", "rows": 1, "waiting": False}]
        },
    ),
    Sample(
        "showDeadLetters", "records", "The records, and what is wrong with them", path=_ORDERS,
        answer={
            "items": [
                {
                    "partition": 0, "offset": 3, "timestamp": _MS, "error": "bad-data: the value is no JSON",
                    "key": "c1", "value": "hello",
                }
            ]
        },
    ),
    Sample(
        "replayDeadLetters", "replayed", "Decode them again, after the schema was mended", status=202, path=_ORDERS,
        body={}, answer={"topic": "orders", "files": 1},
    ),
    # --- transactions ----------------------------------------------------------------------------------
    Sample(
        "listTransactions", "open", "Open transactions", query={"state": "Ongoing"}, answer={"items": [_TRANSACTION]}
    ),
    Sample(
        "describeTransaction", "open", "The partitions of an open transaction", path={"id": "payments-1"},
        answer={**_TRANSACTION, "partitions": [{"topic": "orders", "partition": 0}]},
    ),
    Sample(
        "abortTransaction", "aborted", "Its producer is fenced", path={"id": "payments-1"},
        answer={**_TRANSACTION, "state": "CompleteAbort"},
    ),
    # --- links -----------------------------------------------------------------------------------------
    Sample(
        "createLink", "checked", "Check a link only", query={"validate_only": "true"}, body=_NEW_LINK,
        answer={**_LINK, "state": "copying", "linked": []},
    ),
    Sample(
        "createLink", "created", "Topics by name and by pattern, and their groups", status=201,
        body={**_NEW_LINK, "paused": True}, answer={**_LINK, "linked": []},
    ),
    Sample(
        "listLinks", "first", "The first page", query={"limit": 10},
        answer={
            "items": [{"name": "old", "source": ["127.0.0.1:9192"], "state": "paused", "linked": 1, "stopped": 0}]
        },
    ),
    Sample("describeLink", "link", "How far the topics are copied", path={"link": "old"}, answer=_LINK),
    Sample("pauseLink", "paused", "Nothing is copied any more", path={"link": "old"}, body={}, answer=_LINK),
    Sample("promoteLink", "promoted", "All topics take records", path={"link": "old"}, body={}, answer=_LINK),
    Sample(
        "resumeLink", "resumed", "Copied again", path={"link": "old"}, body={"accept_gap": True},
        answer={**_LINK, "state": "copying"},
    ),
    Sample("deleteLink", "deleted", "The topics stay", status=204, path={"link": "old"}),
    # --- users and rules -------------------------------------------------------------------------------
    Sample(
        "putUser", "created", "A new user", status=201, path={"user": "ann"},
        body={"password": "correct horse battery"},
        answer={"name": "ann", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    ),
    Sample(
        "putUser", "changed", "Another password", path={"user": "ann"},
        body={"password": "staple correct horse", "mechanisms": ["SCRAM-SHA-512"]},
        answer={"name": "ann", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    ),
    Sample(
        "listUsers", "first", "The first page", query={"limit": 10},
        answer={"items": [{"name": "ann", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}]},
    ),
    Sample(
        "describeUser", "user", "How a user can log in", path={"user": "ann"},
        answer={"name": "ann", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    ),
    Sample(
        "addRules", "added", "A user may read a topic", answer={"added": 1},
        body={"rules": [{"resource": "TOPIC", "name": "orders", "principal": "User:ann", "operation": "READ"}]},
    ),
    Sample("listRules", "one", "Rules about a user", query={"principal": "User:ann"}, answer={"items": [_RULE]}),
    Sample(
        "deleteRules", "deleted", "All rules about a user", query={"principal": "User:ann"},
        answer={"deleted": [_RULE]},
    ),
    Sample("deleteUser", "deleted", "The user cannot log in any more", status=204, path={"user": "ann"}),
    # --- the rest --------------------------------------------------------------------------------------
    Sample("deleteTopic", "deleted", "A topic with its records", status=204, path=_ORDERS),
    Sample(
        "explainProblem", "page", "A page for people", path={"name": "not-found"}, answer_media="text/html",
    ),
    Sample("describeApi", "document", "This document"),
    Sample("browseApi", "page", "A page for people", answer_media="text/html"),
    Sample("browseApiFile", "style", "How the page looks", path={"name": "page.css"}, answer_media="text/css"),
)  # fmt: skip
"""All examples, in an order in which they can be sent."""
