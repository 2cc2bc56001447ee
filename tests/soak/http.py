"""64 conditional appenders over HTTP for minutes, while gateways and brokers die again and again.

python -m tests.soak.http --seconds 180 --kills 60
"""

from __future__ import annotations

import argparse

from tests.faults.test_conditional_appends import race
from tests.soak.common import Verdict, workplace

PROMISES = ("L4", "H1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"conditional appends over HTTP, {options.kills} kills")
    with workplace("http") as directory:
        won, lost, wholes = race(directory, options.seconds, options.kills, options.seed)
        verdict.floor("appends that won an offset, all in the log, once", won, 1)
        verdict.floor("appends that lost, told a later end", lost, 1)
        verdict.floor("appends over three partitions, in all of them", wholes, 1)
    verdict.leave()


if __name__ == "__main__":
    main()
