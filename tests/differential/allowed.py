"""All that may differ between Apache Kafka's answers and ours, and why. docs/differences.md is made from this list."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _anything(wanted: Any, got: Any) -> bool:
    return True


def _told_as_well(wanted: Any, got: Any) -> bool:
    return not wanted or bool(got)


def _any_error(wanted: Any, got: Any) -> bool:
    return wanted == "unknown_server_error" and got != "none"


def _both_by_default(wanted: Any, got: Any) -> bool:
    return wanted in (3, 4, 5) and got in (3, 4, 5)


@dataclass(frozen=True, slots=True)
class Rule:
    """Fields that may differ: of these APIs, at paths that match, if the values fit."""

    why: str
    path: str
    """A regular expression over a path without indexes, such as `topics.partitions.leader_epoch`."""
    apis: str = ".*"
    fits: Callable[[Any, Any], bool] = _anything
    about: Container[str] = ()
    """If given, the names that the last index of the path may be."""

    def covers(self, api: str, path: str, wanted: Any, got: Any) -> bool:
        """Whether a difference at a path, with its indexes, may be."""
        indexes = re.findall(r"\[([^]]*)\]", path)
        return (
            re.fullmatch(self.apis, api) is not None
            and re.fullmatch(self.path, re.sub(r"\[[^]]*\]", "", path)) is not None
            and (self.about == () or (bool(indexes) and indexes[-1] in self.about))
            and self.fits(wanted, got)
        )


ALLOWED: dict[str, Rule] = {
    "throttle time": Rule("Depends on load and quotas.", r"throttle_time"),
    "who the brokers are": Rule(
        "Node ids, hosts, ports, racks, the cluster's id, leaders and the controller belong to the cluster.",
        r"(.*\.)?(node_id|host|port|rack|cluster_id|controller_id|broker_id|leader_id|brokers)"
        r"|topics\.partitions\.(replica_nodes|isr_nodes|leader_id)",
    ),
    "leader epochs": Rule(
        "Headwater has no elected leaders: every epoch is 0, and a client's epoch is never too old.",
        r"(.*\.)?(leader_epoch|current_leader)",
    ),
    "where a default comes from": Rule(
        "Depends on the settings of the installation. What a topic sets is compared.",
        r"(.*\.)?configs\.(config_source|synonyms(\..*)?)",
        "create_topics|describe_configs",
        _both_by_default,
    ),
    "replicas in sync": Rule(
        "`min.insync.replicas` is 1 whatever is set: tools would list every partition as under its minimum.",
        r"(.*\.)?configs\.(value|config_source|synonyms(\..*)?)",
        "create_topics|describe_configs",
        about=frozenset({"min.insync.replicas"}),
    ),
    "failures inside Apache Kafka": Rule(
        "Where Apache Kafka fails with an internal error, Headwater names the fault of the request.",
        r"(.*\.)?error_code",
        fits=_any_error,
    ),
    "wording": Rule(
        "Headwater has a message wherever Apache Kafka has one, in other words. It may have one where Kafka has none.",
        r"(.*\.)?(batch_index_)?error_message",
        fits=_told_as_well,
    ),
}

APART: dict[str, str] = {
    "consumer_groups_to_classic_calls": (
        "A group with members refuses members of the other protocol. It changes its protocol when it is empty."
    ),
}
"""Stories whose answers differ as a whole, and why."""


def page() -> str:
    """The rows of docs/differences.md."""
    rows = ["| what | fields | why |", "|---|---|---|"]
    for name, rule in ALLOWED.items():
        fields = rule.path.replace("|", "\\|")
        rows.append(f"| {name} | `{fields}` | {rule.why} |")
    rows += ["", "These sequences have other answers as a whole:", ""]
    rows += [f"- {name.replace('_', ' ')}: {why}" for name, why in APART.items()]
    return "\n".join(rows)


PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
_MARK = "<!-- from tests/differential/allowed.py -->\n"


def rendered(text: str) -> str:
    """The page docs/differences.md with its table made anew."""
    head, _, rest = text.partition(_MARK)
    _, _, tail = rest.partition(_MARK)
    return f"{head}{_MARK}{page()}\n{_MARK}{tail}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
