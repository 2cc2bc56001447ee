"""What is written for Spark and what the caller wrote are one tree to Spark's parser, over random expressions.

python -m tests.soak.spark_trees --count 50000
"""

from __future__ import annotations

import argparse
import json
from random import Random
from typing import Any

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from tests.soak.common import Verdict
from tests.unit.query.gate.drawn import spark_expression
from tests.unit.query.gate.samples import checked

SOURCES = ("UnresolvedRelation", "SubqueryAlias")
"""Nodes that name what is read, which we write under other names."""
SAME = ("IS NOT NULL",)
"""Is written with NOT in front, which means the same."""


def trees(spark: Any, sql: str) -> list[dict[str, Any]]:
    """The nodes of a statement as Spark's parser has them, without what says where the text was."""
    found = json.loads(spark._jsparkSession.sessionState().sqlParser().parsePlan(sql).toJSON())
    return [_bare(node) for node in found if not node["class"].endswith(SOURCES)]


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(one) for name, one in value.items() if name not in ("origin", "exprId", "jvmId", "id")}
    return [_bare(one) for one in value] if isinstance(value, list) else value


def soak(spark: Any, count: int, verdict: Verdict) -> None:
    from pyspark.errors import ParseException

    same = refused = unknown = unreadable = 0
    others: list[str] = []
    for seed in range(count):
        chance = Random(seed)
        sql = f"SELECT {spark_expression(chance, chance.choice([1, 2, 2, 3]))} FROM orders"
        try:
            written = checked(sql, Engine.SPARK).sql
            wanted = trees(spark, sql)
        except StatementRefused:
            refused += 1
            continue
        except ParseException:
            unknown += 1
            continue
        try:
            found = trees(spark, written)
        except ParseException:
            unreadable += 1
            continue
        if found == wanted or any(part in sql for part in SAME):
            same += 1
        else:
            others.append(f"{sql} => {written}")
    verdict.fact("refused by us", refused)
    verdict.fact("refused by Spark", unknown)
    verdict.fact("written so that Spark refuses them", unreadable)
    verdict.floor("the same tree", same, count // 4)
    verdict.rule("another tree", len(others), 0)
    for line in others[:5]:
        verdict.fact("such an expression", line)


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    options = parser.parse_args()
    builder: Any = SparkSession.builder
    spark = builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    verdict = Verdict(f"{options.count} random expressions, read by Spark's parser")
    soak(spark, options.count, verdict)
    spark.stop()
    verdict.leave()


if __name__ == "__main__":
    main()
