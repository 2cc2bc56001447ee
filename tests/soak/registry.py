"""The same calls to the built-in schema registry and to franz-go's, which others wrote, compared answer by answer.

python -m tests.soak.registry --sequences 150 --calls 60 --seed 1

franz-go's registry is a fake for tests: it judges neither compatibility nor modes. Where it departs from Confluent's
documentation and code, `EXCUSED` says how. A sequence ends at such a difference if the states differ from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import httpx

from tests.compat.common import tool
from tests.soak.common import Verdict, console
from tests.support.gateways import InGateway, gateway

PROMISES = ("T6",)

BASE = "shop/address"
"""The subject to which other schemas refer. It has one schema only: franz-go's does not parse what refers to it."""
SUBJECTS = ("orders-value", "orders-key", BASE, "ünï")
TEXTS = [
    '"string"',
    '"int"',
    '{"type":"array","items":"long"}',
    *(
        json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": "string"} for n in names]})
        for names in ("a", "ab", "abc")
    ),
]
ADDRESS = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]})
USER = json.dumps({"type": "record", "name": "User", "fields": [{"name": "home", "type": "Address"}]})
NONE = {"compatibility": "NONE"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call."""

    what: str
    method: str
    path: str
    body: dict[str, Any] | None = None


@dataclass(slots=True)
class Model:
    """What a sequence has done so far, as far as later calls are chosen by it."""

    versions: dict[str, set[int]] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    removed: bool = False
    """Whether something was deleted permanently."""


Told = tuple[bool, Any]
"""Whether a call succeeded, and the value or the number of the error."""

NUMBERS: dict[tuple[int, int], str] = {
    (40401, 40402): "the version, not the subject, is missing",
    (40401, 42202): "no version of a missing subject is valid",
    (40402, 40401): "the subject, not the version, is missing",
    (40403, 40401): "the subject, not the schema, is missing",
    (42206, 42201): "another number for what schemas refer to",
    (40401, 40403): "the schema, not the subject, is missing",
    (40408, 40401): "another number for a subject without a level",
    (40409, 40401): "another number for a subject without a mode",
}
"""By our number and theirs: how refusals of franz-go's registry depart from Confluent's. Nothing has changed."""

EXCUSED: dict[tuple[str, int | bool, int | bool], str] = {
    ("delete subject", 40405, True): "a permanent deletion needs no first step",
    ("delete version", 40407, True): "a permanent deletion needs no first step",
    ("delete subject", 40404, True): "a deleted subject can be deleted again",
    ("delete version", 40406, True): "a deleted version can be deleted again",
    ("referenced by", True, 40402): "nothing is said of a deleted version",
    ("get schema", 40403, True): "a schema that was deleted permanently can be read",
    ("list uses", 40403, True): "a schema that was deleted permanently can be read",
    ("list users", 40403, True): "a schema that was deleted permanently can be read",
    ("register", True, 40401): "nothing can be registered under a deleted subject",
    ("list versions", 40401, True): "a subject is there though its versions were deleted, one by one",
}
"""By call, our answer and theirs (a number, or True for a success): how franz-go's registry departs."""


def chosen(chance: random.Random, model: Model) -> Asked:
    """The next call of a sequence."""
    subject = chance.choice(SUBJECTS)
    plain = chance.choice([name for name in SUBJECTS if name != BASE])
    configured = chance.choice(sorted(model.registered)) if model.registered else ""
    at = f"/subjects/{quote(subject, safe='')}"
    known = sorted(model.versions.get(subject, set()))
    number = chance.choice([*known, 1, 9])
    version = chance.choice((str(number), str(number), "latest"))
    deleted = chance.choice(("", "?deleted=true"))
    text = {"schema": chance.choice(TEXTS)}
    schema = chance.randint(1, 8)
    referring = {"schema": USER, "references": [{"name": "Address", "subject": "shop/address", "version": 1}]}
    calls: list[tuple[int, Callable[[], Asked]]] = [
        (8, lambda: Asked("register", "POST", f"/subjects/{quote(plain, safe='')}/versions", text)),
        (2, lambda: Asked("register", "POST", "/subjects/shop%2Faddress/versions", {"schema": ADDRESS})),
        (2, lambda: Asked("register", "POST", f"/subjects/{quote(plain, safe='')}/versions", referring)),
        (1, lambda: Asked("register", "POST", f"{at}/versions", {"schema": "{"})),
        (3, lambda: Asked("look up", "POST", at, text)),
        (3, lambda: Asked("list subjects", "GET", f"/subjects{deleted}")),
        (3, lambda: Asked("list versions", "GET", f"{at}/versions{deleted}")),
        (4, lambda: Asked("get version", "GET", f"{at}/versions/{version}{deleted}")),
        (1, lambda: Asked("get text", "GET", f"{at}/versions/{version}/schema")),
        (1, lambda: Asked("get version", "GET", f"{at}/versions/x")),
        (2, lambda: Asked("referenced by", "GET", "/subjects/shop%2Faddress/versions/1/referencedby")),
        (3, lambda: Asked("get schema", "GET", f"/schemas/ids/{schema}")),
        (2, lambda: Asked("list uses", "GET", f"/schemas/ids/{schema}/versions")),
        (2, lambda: Asked("list users", "GET", f"/schemas/ids/{schema}/subjects")),
        (2, lambda: Asked("delete version", "DELETE", f"{at}/versions/{number}")),
        (1, lambda: Asked("delete version", "DELETE", f"{at}/versions/{number}?permanent=true")),
        (1, lambda: Asked("delete subject", "DELETE", at)),
        (1, lambda: Asked("delete subject", "DELETE", f"{at}?permanent=true")),
        (int(bool(configured)), lambda: Asked("put config", "PUT", f"/config/{quote(configured, safe='')}", NONE)),
        (1, lambda: Asked("get config", "GET", f"/config/{quote(subject, safe='')}")),
        (1, lambda: Asked("get config", "GET", "/config")),
        (1, lambda: Asked("put config", "PUT", "/config", {"compatibility": "SOME"})),
        (1, lambda: Asked("get mode", "GET", "/mode")),
        (1, lambda: Asked("get mode", "GET", f"/mode/{quote(subject, safe='')}")),
        (1, lambda: Asked("put mode", "PUT", "/mode", {"mode": "SOME"})),
        (2, lambda: Asked("compare", "POST", f"/compatibility{at}/versions/latest", text)),
        (1, lambda: Asked("contexts", "GET", "/contexts")),
    ]
    return chance.choices([call for _, call in calls], [weight for weight, _ in calls])[0]()


def told(asked: Asked, answer: httpx.Response) -> Told:
    """What an answer says, without what only one of the two says: times, GUIDs, texts as they are written."""
    if answer.status_code >= 400:
        return False, answer.json()["error_code"]
    if asked.what == "get text":
        value = json.loads(answer.text)  # franz-go's puts the text into an object
        return True, json.loads(value["schema"]) if isinstance(value, dict) and "schema" in value else value
    value = answer.json()
    if asked.what == "register":
        return True, value["id"]
    if asked.what in ("look up", "get version"):
        return True, (value["subject"], value["version"], value["id"], json.loads(value["schema"]))
    if asked.what == "get schema":
        return True, json.loads(value["schema"])
    if asked.what == "list uses":
        return True, sorted((one["subject"], one["version"]) for one in value or ())
    if asked.what in ("list users", "list subjects", "referenced by"):
        return True, sorted(set(value or ()))
    if asked.what in ("get config", "put config"):
        return True, value.get("compatibilityLevel", value.get("compatibility"))
    return True, value


@dataclass(slots=True)
class Totals:
    """What was compared."""

    calls: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


async def sequence(seed: int, calls: int, ours: InGateway, theirs: httpx.AsyncClient, totals: Totals) -> None:
    """One sequence of calls against two empty registries."""
    chance, model = random.Random(seed), Model()
    await theirs.post("/reset")
    for side in (ours.client, theirs):
        (await side.put("/config", json={"compatibility": "NONE"})).raise_for_status()
    for _ in range(calls):
        asked = chosen(chance, model)
        answers = [await side.request(asked.method, asked.path, json=asked.body) for side in (ours.client, theirs)]
        mine, other = (told(asked, answer) for answer in answers)
        totals.calls[asked.what] += 1
        if mine == other:
            _learn(model, asked, answers[0])
            continue
        reason, same = _excuse(model, asked, mine, other)
        if reason:
            totals.excused[f"{asked.what}: {reason}"] += 1
        else:
            totals.unexplained.append(f"seed {seed}: {asked}: ours {mine}, theirs {other}")
        if not reason or not same:
            return


LONGER = {
    "delete subject": "versions that were deleted before are named again",
    "list subjects": "a subject is listed though its versions were deleted, one by one",
    "list versions": "a deleted version stays though it was registered again",
}
"""By call, why a list of franz-go's registry has all of ours and more."""


def _excuse(model: Model, asked: Asked, mine: Told, other: Told) -> tuple[str, bool]:
    """Why two answers may differ, and whether the states are still the same; nothing if they may not."""
    if not mine[0] and not other[0]:
        return NUMBERS.get((mine[1], other[1]), ""), True
    if asked.what in ("get config", "get mode") and other[0] and not mine[0] and mine[1] in (40408, 40409):
        return "the global value, though the subject has none", True
    if mine[0] and other[0]:
        if asked.what in LONGER and set(mine[1]) < set(other[1] or ()):
            return LONGER[asked.what], False
        if asked.what == "register" and model.removed:
            return "a schema that was deleted permanently keeps its id", False
        return "", False
    return EXCUSED.get((asked.what, mine[0] or mine[1], other[0] or other[1]), ""), False


def _learn(model: Model, asked: Asked, answer: httpx.Response) -> None:
    """Remember which versions there are."""
    if answer.status_code >= 400:
        return
    model.removed = model.removed or "permanent" in asked.path
    if asked.what == "register":
        model.registered.add(unquote(asked.path.split("/")[2]))
    if asked.what == "get version":
        value = answer.json()
        model.versions.setdefault(value["subject"], set()).add(value["version"])


async def compared(sequences: int, calls: int, seed: int) -> Totals:
    """Compare many sequences."""
    totals = Totals()
    with subprocess.Popen([str(tool("servers/schema-registry"))], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            async with httpx.AsyncClient(base_url=url, trust_env=False) as theirs:
                for i in range(sequences):
                    async with gateway() as ours:
                        await sequence(seed + i, calls, ours, theirs, totals)
        finally:
            process.kill()
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=150)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"{options.sequences} sequences of calls to two schema registries")
    totals = asyncio.run(compared(options.sequences, options.calls, options.seed))
    for what, count in sorted(totals.calls.items()):
        verdict.fact(f"calls: {what}", count)
    for what, count in sorted(totals.excused.items()):
        verdict.fact(f"excused: {what}", count)
    for line in totals.unexplained[:20]:
        console.print(line)
    verdict.floor("calls", totals.calls.total(), 10 * options.sequences)
    verdict.rule("answers that differ without a reason", len(totals.unexplained), 0)
    verdict.leave()


if __name__ == "__main__":
    main()
