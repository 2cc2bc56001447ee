"""Runs tests that know nothing of it on clusters: ledgers in a journal, on etcd, Oxia or a bucket, objects on S3.

    python -m tests.clustered [--ledger journal|etcd|oxia|bucket|sqlite] [PYTEST OPTIONS]

HEADWATER_TEST_CLUSTER does it. Servers of client tests are then three brokers in two zones; whatever starts a
`headwater up` of its own gets one whose stores are servers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from harness.stores import LEDGERS
from harness.tools import ROOT
from tests.support.running import VARIABLE

CLIENTS = (
    "tests/compat/test_aiokafka.py",
    "tests/compat/test_franz_go.py",
    "tests/compat/test_java.py",
    "tests/compat/test_kafka_python.py",
    "tests/compat/test_kafka_tools.py",
    "tests/compat/test_kafkajs.py",
    "tests/compat/test_kcat.py",
    "tests/compat/test_librdkafka.py",
    "tests/compat/test_recompression.py",
    "tests/compat/test_client.py",
    "tests/compat/test_documented.py",
)
GROUPS = (
    "tests/compat/test_group_tools.py",
    "tests/compat/test_groups.py",
    "tests/faults/test_kill_coordinator.py",
    "tests/faults/test_moved_coordinator.py",
)
HTTP = ("tests/gateway/test_records.py",)
SECURITY = ("tests/compat/test_secured.py",)
SETTLING = ("tests/faults/test_compactor_kills.py", "tests/engines/test_bulk_append.py")
LOG = ("tests/invariants/test_i1_offsets_increase.py", "tests/invariants/test_i2_read_your_writes.py")
FAULTS = (
    "tests/faults/test_bad_input.py",
    "tests/faults/test_conditional_appends.py",
    "tests/faults/test_exactly_once.py",
    "tests/faults/test_kill_all.py",
    "tests/faults/test_kill_broker.py",
    "tests/faults/test_pause_broker.py",
    "tests/faults/test_prepared_transactions.py",
)

SELECTIONS: Mapping[str, Sequence[str]] = {
    "sqlite": (*LOG, *FAULTS),
    "journal": (*CLIENTS, *GROUPS, *HTTP, *SECURITY, *SETTLING, *LOG, *FAULTS),
    "etcd": (*CLIENTS, *GROUPS, *HTTP, *SECURITY, *SETTLING, *LOG, *FAULTS, "tests/faults/test_rolling_restart.py"),
    "oxia": (*LOG, *GROUPS, *HTTP, *FAULTS, "tests/compat/test_librdkafka.py"),
    "bucket": (*LOG, *GROUPS, *HTTP, *FAULTS, "tests/compat/test_librdkafka.py"),
}

LEFT_OUT: Mapping[str, str] = {
    "tests/differential": "compares with Apache Kafka answer by answer, which is the same broker code",
    "tests/compat/test_many_partitions.py": "about one broker's answers; its stores do not matter",
    "tests/compat/test_on_a_cluster.py": "starts its cluster itself",
    "tests/compat/test_link_source.py": "about how a source is read; no store of ours matters",
    "tests/compat/test_zones.py": "chooses the zones of its brokers itself",
    "tests/engines/test_everyone.py": "reads a table by the paths of a local directory",
    "tests/engines/test_evolution.py": "reads a table by the paths of a local directory",
    "tests/engines/test_external_catalog.py": "reads a table by the paths of a local directory",
    "tests/engines/test_typed_settling.py": "reads a table by the paths of a local directory",
    "tests/gateway/test_schemas.py": "about one gateway's answers; its stores do not matter",
    "tests/gateway/test_encoding.py": "about one gateway's answers; its stores do not matter",
    "tests/engines/test_s3.py": "chooses its stores itself",
    "tests/engines/test_spark_source.py": "about the client of a gateway; its stores do not matter",
    "tests/faults/test_backup.py": "backups are of embedded ledgers and local objects only",
    "tests/faults/test_backpressure.py": "about one broker's memory; its stores do not matter",
    "tests/faults/test_brownout.py": "makes the store of one broker slow, which is a local one",
    "tests/faults/test_beside_others.py": "about files and processor time on one machine; its stores do not matter",
    "tests/faults/test_bucket_cluster.py": "starts its cluster itself",
    "tests/faults/test_holds.py": "looks at the files of a local directory",
    "tests/gateway/test_flight_sql.py": "about a door of the gateway; its stores do not matter",
    "tests/gateway/test_sql.py": "about a door of the gateway; its stores do not matter",
    "tests/faults/test_cluster.py": "starts its clusters itself",
    "tests/faults/test_connections.py": "about one broker's sockets; its stores do not matter",
    "tests/faults/test_damage.py": "damages files of a local object store on purpose",
    "tests/faults/test_demo_cluster.py": "starts its cluster itself",
    "tests/faults/test_disk_full.py": "fills the disk under an embedded ledger; an S3 server's disk is not ours",
    "tests/faults/test_doctor.py": "damages files of an embedded ledger and of a local object store on purpose",
    "tests/faults/test_duties.py": "about the duties of one process; its stores do not matter",
    "tests/faults/test_http_access.py": "about who may see pages; its stores do not matter",
    "tests/faults/test_http_bad_input.py": "does not depend on the ledger",
    "tests/faults/test_idempotency_keys.py": "copies an embedded ledger",
    "tests/faults/test_ledger_back.py": "damages an embedded ledger on purpose",
    "tests/faults/test_link_security.py": "about the way to a source; the stores do not matter",
    "tests/faults/test_links.py": "about sources that fail and processes that die; the stores do not matter",
    "tests/faults/test_metadata_copy.py": "starts its cluster itself, on every ledger in turn",
    "tests/faults/test_promises.py": "removes checkpoints and objects of a local store on purpose",
    "tests/faults/test_oxia.py": "starts its cluster itself",
    "tests/faults/test_s3_cluster.py": "starts its cluster itself",
    "tests/faults/test_supervisor.py": "about processes; its stores do not matter",
    "tests/faults/test_upgrade.py": "starts its cluster itself",
    "tests/faults/test_version_skew.py": "starts its cluster itself",
    "tests/faults/test_zone_cache.py": "chooses the zones of its brokers itself",
    "tests/formats/test_restart.py": "reads a data directory that was written on one machine",
    "tests/gateway/test_admin.py": "about the answers of a gateway; its stores do not matter",
    "tests/gateway/test_description.py": "about the answers of a gateway; its stores do not matter",
    "tests/gateway/test_python.py": "about the client of a gateway, and about data directories of embedded clusters",
    "tests/gateway/test_rest_proxy.py": "about forms of requests and answers; its stores do not matter",
    "tests/gateway/test_serving.py": "about the gateway's process and its answers; its stores do not matter",
    "tests/gateway/test_spark_sql.py": "about a door of the gateway; its stores do not matter",
    "tests/processes/test_descriptors.py": "about descriptors of a broker and a gateway; their stores do not matter",
    "tests/fuzz/test_frames.py": "about what one broker reads; its stores do not matter",
    "tests/invariants/test_i3_crash_before_record.py": "a broker that crashes on a line of code, on a local directory",
    "tests/invariants/test_i4_crash_after_record.py": "a broker that crashes on a line of code, on a local directory",
    "tests/invariants/test_i6_zone_metadata.py": "chooses the zones of its brokers itself",
    "tests/cli/test_first_hour.py": "types what a newcomer types, on an embedded Headwater",
    "tests/cli/test_cluster.py": "looks at the ledger of an embedded Headwater",
    "tests/cli/test_secured.py": "makes its first user in an embedded ledger, as the documentation says",
    "tests/cli/test_commands.py": "looks into the data directory of an embedded Headwater",
    "tests/cli/test_readme.py": "runs the commands of the README on an embedded Headwater",
    "tests/cli/test_ingest.py": "makes an embedded Headwater by one command, as the documentation says",
}
"""Tests that start a Headwater and do not run on a cluster, and why."""


def run(ledger: str, tests: Sequence[str], more: Sequence[str]) -> int:
    """The exit code of pytest."""
    print(f"--- {ledger}: {len(tests)} files", flush=True)
    command = [sys.executable, "-m", "pytest", *tests, *more]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, VARIABLE: ledger}, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", choices=LEDGERS, action="append", help="by default all but SQLite")
    options, more = parser.parse_known_args()
    wanted = options.ledger or ["etcd", "oxia", "bucket"]
    sys.exit(max(run(ledger, SELECTIONS[ledger], more) for ledger in wanted))


if __name__ == "__main__":
    main()
