"""Settings of SQL: defaults that work, and values that cannot."""

import msgspec
import pytest

from headwater.errors import ConfigError
from headwater.settings.settings import Settings, load
from headwater.settings.sql import Sql, check_sql


def test_defaults() -> None:
    check_sql(Sql())
    assert Sql().chosen_threads >= 1 and Sql(threads=3).chosen_threads == 3
    assert Settings(data="/d").spill == "/d/spill" and Settings(sql=Sql(spill="/other")).spill == "/other"
    assert load(environment={"HEADWATER_SQL__ROWS": "7"}).sql.rows == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": 0}, "sql.workers must be above 0"),
        ({"seconds": -1}, "sql.seconds must be above 0"),
        ({"waiting": -1}, "sql.waiting must not be negative"),
        ({"warm": 4}, "sql.warm must not be above sql.workers"),
        ({"niceness": 20}, "sql.niceness must not be above 19"),
        ({"memory_bytes": 1}, "at least 64 MiB"),
    ],
)
def test_what_cannot_work(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sql(msgspec.structs.replace(Sql(), **wrong))


def test_more_functions_are_names_in_lower_case() -> None:
    check_sql(Sql(functions=("getvariable",)))
    for name in ("", "GetVariable", "a b", "f("):
        with pytest.raises(ConfigError, match=r"sql\.functions"):
            check_sql(Sql(functions=(name,)))
