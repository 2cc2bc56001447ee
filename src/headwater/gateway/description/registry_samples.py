"""The examples of the schema registry's calls, in an order in which they can be sent. See `samples`."""

from __future__ import annotations

from headwater.gateway.description.refusals import REGISTRY_MEDIA
from headwater.gateway.description.sample import Sample

_TEXT = '{"type":"record","name":"Order","fields":[{"name":"amount","type":"long"}]}'
_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}
_GUID = "3293f48e-84e2-c785-a847-f2e707202ccf"
_MS = 1_767_225_600_000
_ORDERS, _VERSION, _ID = {"subject": "orders-value"}, {"subject": "orders-value", "version": "latest"}, {"schema_id": 1}
_NEW = {"schema": _TEXT, "schemaType": "AVRO"}
_SCHEMA = {"guid": _GUID, "schemaType": "AVRO", "schema": _TEXT, "ts": _MS}
_WHOLE = {"subject": "orders-value", "version": 1, "id": 1, **_SCHEMA}
_OTHER = {"subject": "orders-key"}


def _sample(call: str, title: str, summary: str, answer: object, **more: object) -> Sample:
    return Sample(call, title, summary, answer=answer, answer_media=REGISTRY_MEDIA, **more)  # type: ignore[arg-type]


REGISTRY_SAMPLES: tuple[Sample, ...] = (
    _sample(
        "registerSchema", "registered", "The first version of a subject",
        {"version": 1, "id": 1, "guid": _GUID, "schemaType": "AVRO", "ts": _MS}, path=_ORDERS, body=_NEW,
    ),
    _sample(
        "registerSchema", "another", "A schema of keys",
        {"version": 1, "id": 2, "guid": _GUID, "schemaType": "AVRO", "ts": _MS}, path=_OTHER,
        body={"schema": '"string"'},
    ),
    _sample("lookUpSchema", "known", "Which version a schema is", _WHOLE, path=_ORDERS, body=_NEW),
    _sample(
        "checkCompatibility", "compatible", "Whether a schema could be the next version",
        {"is_compatible": True, "messages": []}, path=_ORDERS, query={"verbose": "true"}, body=_NEW,
    ),
    _sample(
        "checkCompatibilityWithVersion", "compatible", "Whether a schema is compatible with the newest version",
        {"is_compatible": True}, path=_VERSION, body=_NEW,
    ),
    _sample("listSubjects", "subjects", "Names of subjects", ["orders-key", "orders-value"], query={"limit": 10}),
    _sample("listSubjectVersions", "versions", "Numbers of versions", [1], path=_ORDERS),
    _sample("describeSubjectVersion", "newest", "The newest version", _WHOLE, path=_VERSION),
    Sample("readSubjectVersion", "text", "The schema alone", path=_VERSION, answer=_ORDER),
    _sample("listReferrers", "none", "No schema refers to it", [], path=_VERSION),
    _sample("findByMetadata", "newest", "The newest version, whatever its metadata", _WHOLE, path=_ORDERS),
    _sample("listSchemas", "newest", "The newest version of each subject", [_WHOLE], query={"latestOnly": "true"}),
    _sample("listSchemaTypes", "types", "Kinds of schemas", ["JSON", "PROTOBUF", "AVRO"]),
    _sample("describeSchema", "schema", "A schema by the id in front of records", _SCHEMA, path=_ID),
    Sample("readSchema", "text", "The schema alone", path=_ID, answer=_ORDER),
    _sample("listSubjectsOfSchema", "subjects", "Which subjects have it", ["orders-value"], path=_ID),
    _sample(
        "listVersionsOfSchema", "versions", "Which versions have it", [{"subject": "orders-value", "version": 1}],
        path=_ID,
    ),
    _sample("describeSchemaByGuid", "schema", "A schema by the GUID in a header", _SCHEMA, path={"guid": _GUID}),
    _sample("listIdsOfGuid", "ids", "Its ids", [{"context": ".", "id": 1}], path={"guid": _GUID}),
    _sample("openRegistry", "there", "The registry is there", {}),
    _sample("listContexts", "contexts", "There is the default one only", ["."]),
    _sample(
        "describeRegistry", "server", "The cluster of the registry",
        {"scope": {"path": [], "clusters": {"kafka-cluster": "p0Yt7kBxQ2mSx1uSg0lLsA", "schema-registry-cluster": ""}},
         "id": ""},
    ),
    _sample("describeRegistryVersion", "build", "The build", {"version": "0.1.0", "commitId": ""}),
    _sample("describeCompatibility", "global", "The level of all subjects", {"compatibilityLevel": "BACKWARD"}),
    _sample(
        "changeCompatibility", "changed", "Another level for all subjects", {"compatibility": "FULL"},
        body={"compatibility": "FULL"},
    ),
    _sample("resetCompatibility", "reset", "Back to the default; what it was", {"compatibilityLevel": "FULL"}),
    _sample(
        "changeSubjectCompatibility", "changed", "A level of its own", {"compatibility": "FULL_TRANSITIVE"},
        path=_ORDERS, body={"compatibility": "FULL_TRANSITIVE"},
    ),
    _sample(
        "describeSubjectCompatibility", "own", "The level of a subject", {"compatibilityLevel": "FULL_TRANSITIVE"},
        path=_ORDERS,
    ),
    _sample(
        "deleteSubjectCompatibility", "removed", "The global level again; what it was",
        {"compatibilityLevel": "FULL_TRANSITIVE"}, path=_ORDERS,
    ),
    _sample("describeMode", "global", "What may be changed", {"mode": "READWRITE"}),
    _sample("changeMode", "changed", "Schemas may be registered", {"mode": "READWRITE"}, body={"mode": "READWRITE"}),
    _sample("resetMode", "reset", "Back to the default; what it was", {"mode": "READWRITE"}),
    _sample(
        "changeSubjectMode", "changed", "A mode of its own", {"mode": "READWRITE"}, path=_ORDERS,
        body={"mode": "READWRITE"},
    ),
    _sample("describeSubjectMode", "own", "The mode of a subject", {"mode": "READWRITE"}, path=_ORDERS),
    _sample(
        "deleteSubjectMode", "removed", "The global mode again; what it was", {"mode": "READWRITE"}, path=_ORDERS
    ),
    _sample("deleteSubject", "deleted", "All versions; they can still be read by their ids", [1], path=_OTHER),
    _sample(
        "deleteSubjectVersion", "removed", "A deleted version is removed for ever", 1,
        path={"subject": "orders-key", "version": "1"}, query={"permanent": "true"},
    ),
)  # fmt: skip
"""All examples, in an order in which they can be sent."""
