"""Settings of SQL that cannot work."""

from __future__ import annotations

import pytest

from headwater.errors import ConfigError
from headwater.settings.settings import Sql
from headwater.settings.sql import check_sql


def test_more_functions_are_names_in_lower_case() -> None:
    check_sql(Sql(functions=("getvariable",)))
    for name in ("", "GetVariable", "a b", "f("):
        with pytest.raises(ConfigError, match=r"sql\.functions"):
            check_sql(Sql(functions=(name,)))
