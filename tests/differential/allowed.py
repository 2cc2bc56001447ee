"""All that may differ between Apache Kafka's answers and ours, and why.

docs/reference/differences.md is made from this list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any


def _anything(wanted: Any, got: Any) -> bool:
    return True


def _told_as_well(wanted: Any, got: Any) -> bool:
    return not wanted or bool(got)


def _any_error(wanted: Any, got: Any) -> bool:
    return wanted == "unknown_server_error" and got != "none"


def _not_joined(wanted: Any, got: Any) -> bool:
    return {wanted, got} == {"invalid_txn_state", "transaction_abortable"}


def _one_epoch_apart(wanted: Any, got: Any) -> bool:
    return wanted == got + 1


def _at_about_the_same_time(wanted: Any, got: Any) -> bool:
    if wanted is None or got is None:
        return False
    one, other = (datetime.fromisoformat(time) for time in (wanted, got))
    return abs(one - other) < timedelta(minutes=1)


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
    "the epoch after a takeover": Rule(
        "InitProducerId ends an open transaction. Apache Kafka leaves out an epoch then: it ends the transaction and "
        "asks the producer to come back. Headwater does both in one step.",
        "producer_epoch",
        "init_producer_id",
        _one_epoch_apart,
    ),
    "times of transactions": Rule(
        "Both servers take the time from their own clocks. The times may be a minute apart.",
        r"(.*\.)?transaction_start_time",
        "describe_transactions",
        _at_about_the_same_time,
    ),
    "what a partition remembers of producers": Rule(
        "Apache Kafka has the epoch and the time of the last batch or marker, and the coordinator's epoch. Headwater "
        "has the epoch of the last batch and the time at which it was appended. No coordinator has epochs.",
        r"topics\.partitions\.active_producers\.(producer_epoch|last_sequence|last_timestamp|coordinator_epoch)",
        "describe_producers",
    ),
    "partitions and groups that have not joined": Rule(
        "Versions of Produce up to 10 and of TxnOffsetCommit up to 3 say INVALID_TXN_STATE, later ones "
        "TRANSACTION_ABORTABLE. Apache Kafka asks for several requests at once whether they have joined, and answers "
        "all of them in the way of the first.",
        r"(.*\.)?error_code",
        "produce|txn_offset_commit",
        _not_joined,
    ),
    "versions of InitProducerId": Rule(
        "Version 6 has two-phase commits, which both refuse. Apache Kafka announces it only with versions that are "
        "not stable.",
        r"\.?max_version",
        "apis",
        about=frozenset({"22"}),
    ),
    "the lowest version of a feature": Rule(
        "A setting decides on `transaction.version`, so there is one version at a time.", r"\.?min_version", "features"
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
    **{
        f"init_with_another_epoch_while_open_in_generation_{number}": (
            "Apache Kafka ends the open transaction before it looks at the epoch that the producer expects. Headwater "
            "looks first, and a producer that is fenced ends nothing."
        )
        for number in (1, 2)
    },
    **{
        f"look_for_the_time_of_markers_v{version}": (
            "Apache Kafka finds the markers of transactions by their time. Headwater finds records only: markers are "
            "gone when their partition is settled."
        )
        for version in (1, 11)
    },
    "another_transactional_id_is_named": (
        "Apache Kafka does not look at the transactional id of a request if the partition or the group has joined "
        "with this producer. Headwater always does."
    ),
    "a_batch_that_is_refused_does_not_join": (
        "In Apache Kafka a batch makes its partition join the transaction before its sequence is looked at."
    ),
    "records_of_an_open_transaction_are_deleted": (
        "In Apache Kafka the last stable offset stays where the transaction began. In Headwater it is never before the "
        "start of the log."
    ),
    "a_producer_does_not_begin_at_zero": (
        "Up to version 11 of Produce Apache Kafka takes any first sequence of a producer that is new to a partition. "
        "Headwater wants 0, as both do from version 12 on."
    ),
    "a_producer_that_left_markers_only": "Headwater remembers a producer in the partitions that it has written to.",
    "a_commit_after_a_time_out": (
        "The answer is PRODUCER_FENCED, which Kafka Streams survives, not INVALID_TXN_STATE."
    ),
    "a_plain_commit_is_stable_at_once": (
        "A commit without a transaction takes the place of an offset that was staged before it. Both servers keep it "
        "when the transaction ends; Apache Kafka says only then that it is stable."
    ),
    "two_transactions_stage_one_offset": (
        "Apache Kafka keeps the offset that was staged last, Headwater the one that was committed last. Consumers "
        "wait until staged offsets are decided, so two transactions do not stage the same one."
    ),
}
"""Stories whose answers differ as a whole, and why."""


def page() -> str:
    """The rows of docs/reference/differences.md."""
    rows = ["| what | fields | why |", "|---|---|---|"]
    for name, rule in ALLOWED.items():
        fields = rule.path.replace("|", "\\|")
        rows.append(f"| {name} | `{fields}` | {rule.why} |")
    rows += ["", "These sequences have other answers as a whole:", ""]
    rows += [f"- {name.replace('_', ' ')}: {why}" for name, why in APART.items()]
    return "\n".join(rows)


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"
_MARK = "<!-- from tests/differential/allowed.py -->\n"


def rendered(text: str) -> str:
    """The page docs/reference/differences.md with its table made anew."""
    head, _, rest = text.partition(_MARK)
    _, _, tail = rest.partition(_MARK)
    return f"{head}{_MARK}{page()}\n{_MARK}{tail}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
