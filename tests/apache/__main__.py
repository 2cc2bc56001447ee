"""Run Apache Kafka's own tests by hand: python -m tests.apache [-k TEXT] [--sample SECONDS]

Shows how each ended, and what is not as `tests/open.txt` says. With `--sample`, the sample of `make test-full` is
chosen anew by the seconds that the tests took.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.apache.listed import chosen, left_out, running_classes, surprises, unanswerable, undecided, write_sample
from tests.apache.running import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only classes whose name has this in it")
    parser.add_argument("--sample", type=float, help="choose the sample anew, so that it takes these seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(Path(directory), [name for name in running_classes() if options.k in name])
    for one in outcome.runs:
        print(f"{one.ended} {one.seconds:.1f} s {one.test}")
    if options.sample is not None:
        write_sample(chosen(outcome, options.sample, {*unanswerable(), *undecided()}))
    found = surprises(outcome, left_out())
    for name, what in found.items():
        print(f"{name}: {what}")
    print(f"{len(outcome.ended)} tests, {sum(map(bool, outcome.ended.values()))} failed, {len(found)} surprise")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
