"""A whole cluster on this machine: three nodes of etcd, an S3 server, three brokers in two zones, a compactor.

    python -m demo.cluster [--ledger etcd|oxia|bucket|sqlite] [--port 9092] [--directory DIR] [--no-compactor]

All of them are real processes and may be killed. A process that ends is started again, except for the stores. Ctrl-C
ends everything. With `--directory` logs and data stay there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from harness.cluster import Cluster
from harness.stores import LEDGERS

LOOK_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", choices=LEDGERS, default="etcd")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--port", type=int, default=9092, help="of the first broker; the others follow")
    parser.add_argument("--directory", type=Path, help="for all data; by default a temporary one")
    parser.add_argument("--no-compactor", action="store_true", help="topics do not settle into tables")
    options = parser.parse_args()
    parent = os.getpid()
    child = os.fork()
    if child:
        sys.exit(forward_signals(child))
    # In its own session: otherwise Ctrl-C would end the stores before the brokers have left.
    os.setsid()
    serve(options, parent)


def forward_signals(child: int) -> int:
    """Wait for the child, and forward signals to it; returns its exit code."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def serve(options: argparse.Namespace, parent: int) -> None:
    """Serve until a signal comes, or until the parent is gone."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ExitStack() as running:
        directory = options.directory or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-")))
        print(f"starting; data and logs are in {directory}", flush=True)
        cluster = running.enter_context(
            Cluster(
                directory.absolute(),
                options.ledger,
                options.brokers,
                compactor=not options.no_compactor,
                first_port=options.port,
                quick=False,
            )
        )
        show(cluster)
        while not stop.wait(LOOK_SECONDS) and os.getppid() == parent:
            keep_alive(cluster)
        print("stopping", flush=True)


def show(cluster: Cluster) -> None:
    """Print the addresses, process ids and settings of the cluster."""
    stores = cluster.stores
    print(f"ledger     {stores.ledger_url}")
    print(f"objects    {stores.objects_url} at {stores.s3.endpoint}")
    for name, member in cluster.members.items():
        where = f"kafka {member.kafka}, zone {member.zone}, " if member.kafka else ""
        where = f"API http://{cluster.gateway}, " if member.mode == "gateway" else where
        print(f"{name:<10} {where}http {member.http}, pid {member.pid}")
    print(f"settings   {cluster.config}; for commands that read them: ")
    print("           export " + " ".join(f"{name}={value}" for name, value in stores.environment.items()))
    print(f"headwater ready: kafka {cluster.bootstrap}", flush=True)


def keep_alive(cluster: Cluster) -> None:
    """Restart processes that have ended."""
    for name, member in cluster.members.items():
        if not member.runs:
            member.launch()
            print(f"{name} ended and is started again, pid {member.pid}", flush=True)


if __name__ == "__main__":
    main()
