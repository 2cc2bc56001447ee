"""Writes the parts of the docs that are derived from the code: `python scripts/docs.py` (`make docs`)."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from headwater import config
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.registry import APIS
from headwater.metadata.topic_configs import KEYS
from headwater.wire.messages import api_name, known_versions

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- generated: {name} -->", "<!-- end: {name} -->"

# APIs that only Kafka's own brokers and controllers send to each other; no client needs them.
INTERNAL = {
    "vote", "begin_quorum_epoch", "end_quorum_epoch", "describe_quorum", "alter_partition", "envelope",
    "fetch_snapshot", "broker_registration", "broker_heartbeat", "unregister_broker", "allocate_producer_ids",
    "controller_registration", "assign_replicas_to_dirs", "add_raft_voter", "remove_raft_voter",
    "update_raft_voter", "initialize_share_group_state", "read_share_group_state", "write_share_group_state",
    "delete_share_group_state", "read_share_group_state_summary", "write_txn_markers",
}  # fmt: skip


def served() -> str:
    rows = ["| API | key | versions | in Kafka 4 |", "|---|---|---|---|"]
    for api in sorted(APIS.values(), key=lambda api: api.key):
        known = known_versions(api.key)
        rows.append(f"| {api.name} | {api.key} | {api.versions[0]} to {api.versions[-1]} | {known[0]} to {known[-1]} |")
    return "\n".join(rows)


def missing() -> str:
    names = [api_name(key) for key in range(200) if known_versions(key) and key not in APIS]
    return ", ".join(f"`{name}`" for name in sorted(names) if name not in INTERNAL)


def topic_configs() -> str:
    rows = ["| config | default | effect |", "|---|---|---|"]
    for key in KEYS.values():
        effect = f"Read-only. {key.doc}" if key.fixed else key.doc
        rows.append(f"| `{key.name}` | `{key.default or '(empty)'}` | {effect} |")
    return "\n".join(rows)


def settings() -> str:
    rows = ["| setting | default |", "|---|---|"]

    def add(prefix: str, value: object) -> None:
        for name in getattr(value, "__struct_fields__", ()):
            inner = getattr(value, name)
            if isinstance(inner, msgspec.Struct):
                add(f"{prefix}{name}.", inner)
            else:
                rows.append(f"| `{prefix}{name}` | `{inner if inner != '' else '(empty)'}` |")

    add("", config.Settings())
    return "\n".join(rows)


PAGES = {
    "docs/protocol.md": {"served": served, "topic configs": topic_configs},
    "docs/configuration.md": {"settings": settings},
    "GAPS.md": {"missing": missing},
}


def render(page: str, text: str) -> str:
    """A page with its generated parts made anew."""
    for name, make in PAGES[page].items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{page} has no part {name!r}")
        text = f"{head}{begin}\n{make()}\n{end}{tail}"
    return text


def main() -> int:
    for page in PAGES:
        path = ROOT / page
        path.write_text(render(page, path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
