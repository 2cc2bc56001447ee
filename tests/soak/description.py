"""Many random requests, made from the OpenAPI document of a gateway: no 5xx, and no answer that breaks the document.

python -m tests.soak.description --examples 200
"""

from __future__ import annotations

import argparse
import json
from urllib.request import urlopen

from tests.soak.common import Verdict, workplace
from tests.support.described import probe
from tests.support.running import Running

PROMISES = ("H2",)

TOPIC = "probed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=200)
    options = parser.parse_args()
    verdict = Verdict(f"{options.examples} random requests of every call")
    with workplace("description") as directory, Running(directory, gateway=True) as server:
        server.create(TOPIC, 3)
        with urlopen(f"{server.gateway_url}/openapi.json", timeout=60) as answer:
            document = json.load(answer)
        statuses = probe(document, server.gateway_url, options.examples, {}, TOPIC)
    for status, count in sorted(statuses.items()):
        verdict.fact(f"answers with {status}", count)
    verdict.floor("answers that succeed", float(statuses[200]), 1.0)
    verdict.leave()


if __name__ == "__main__":
    main()
