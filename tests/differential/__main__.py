"""Tell stories to servers that run already: python -m tests.differential KAFKA OURS [-k TEXT] [-v] [--write]

With -v, what Apache Kafka said is shown as well; with --write, the list of open differences is made anew.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.differential.allowed import APART
from tests.differential.compare import Symbols, normal
from tests.differential.stories import STORIES
from tests.differential.telling import tell_all
from tests.support import open as open_list


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kafka")
    parser.add_argument("ours")
    parser.add_argument("-k", default="", help="only stories whose name has this in it")
    parser.add_argument("-v", action="store_true", help="show what Apache Kafka said")
    parser.add_argument("--write", action="store_true", help="make the list of open differences anew")
    options = parser.parse_args()
    names = [name for name in STORIES if options.k in name]
    open_now: dict[str, list[str]] = {}
    for name, verdict in asyncio.run(tell_all(names, (options.kafka, options.ours))).items():
        outcome, found = verdict.outcome, verdict.differences
        if found and name not in APART:
            open_now[name] = found
        if options.v:
            print(f"--- {name}")
            symbols = Symbols()
            for said in outcome.kafka.said:
                print(f"  {said.asked}\n    -> {normal(said.answer, outcome.kafka.prefix, symbols)}")
        if outcome.kafka.broken:
            print(f"{name}: does not hold for Apache Kafka: {outcome.kafka.broken}")
        for line in verdict.wavering:
            print(f"{name} wavers: {line}")
        for line in found if name not in APART else ():
            print(f"{name}: {line}")
    print(f"{len(names)} stories, {len(open_now)} differ")
    if options.write:
        others = STORIES.keys() - set(names)
        rest = {name: [what] for name, what in open_list.stories().items() if name in others}
        open_list.write_stories({**rest, **open_now})
    return 1 if open_now else 0


if __name__ == "__main__":
    sys.exit(main())
