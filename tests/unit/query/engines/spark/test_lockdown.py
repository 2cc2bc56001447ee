"""The second gate of Spark, over parsed statements as Spark writes them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import StatementRefused
from headwater.query.engines.spark.lockdown import check

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
ANALYSIS = "org.apache.spark.sql.catalyst.analysis."


def relation(name: str) -> dict[str, Any]:
    return {"class": f"{ANALYSIS}UnresolvedRelation", "num-children": 0, "multipartIdentifier": name}


def project(*inner: Any) -> list[Any]:
    return [{"class": f"{LOGICAL}Project", "num-children": 1, "projectList": [list(inner)], "child": 0}]


def call(name: str) -> dict[str, Any]:
    return {"class": f"{ANALYSIS}UnresolvedFunction", "num-children": 0, "nameParts": name}


def generator(name: str, **more: str) -> dict[str, Any]:
    return {"class": f"{ANALYSIS}UnresolvedGenerator", "num-children": 0, "name": {"funcName": name, **more}}


def test_reading_is_allowed() -> None:
    check([*project(generator("explode")), relation("[topic_0]")])
    check([*project(call("[count]"), call("[upper]")), relation("[topic_0]")])
    subquery = {"class": "org.apache.spark.sql.catalyst.expressions.ScalarSubquery", "plan": [relation("[topic_0]")]}
    check([*project(subquery), relation("[topic_1]")])


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([relation("[parquet, /etc/passwd]")], "no topic"),
        ([{"class": f"{LOGICAL}CreateTable"}], "CreateTable is not available"),
        ([{"class": f"{LOGICAL}ScriptTransformation"}], "ScriptTransformation is not available"),
        ([{"class": "org.apache.spark.sql.execution.command.SetCommand"}], "SetCommand is not available"),
        ([{"class": f"{ANALYSIS}UnresolvedExecuteImmediate"}], "UnresolvedExecuteImmediate is not available"),
        ([{"class": f"{ANALYSIS}PlanWithUnresolvedIdentifier"}], "PlanWithUnresolvedIdentifier is not available"),
        (project(generator("java_method")), "the function java_method"),
        (project(generator("explode", database="other")), "the function with a schema"),
        (project(call("[reflect]")), "the function reflect"),
        (project(call("[java_method]")), "the function java_method"),
        (project(call("[a, b, upper]")), "the function a.b.upper"),
        (project({"class": "…ScalarSubquery", "plan": [relation("[text, secret]")]}), "no topic 'text.secret'"),
        ([{"class": f"{ANALYSIS}UnresolvedTableValuedFunction", "name": "[read_files]"}], "the function read_files"),
    ],
)
def test_all_else_is_refused(nodes: list[Any], words: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        check(nodes)
    assert words in str(caught.value)
