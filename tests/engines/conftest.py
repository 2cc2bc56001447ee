"""One Spark of a user for all modules: its JVM starts once, and has loaded and compiled the connectors once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from demo.readers import JARS, NOTHING_MORE, S3_JARS, catalog_settings, spark
from harness.jvm import OF_SPARK
from harness.storage import Place
from harness.tools import needs
from tests.engines.spark_stream import NOWHERE

OF_HADOOP = "spark.hadoop."
Open = Callable[..., Any]


@pytest.fixture(scope="package")
def jvm() -> Iterator[Any]:
    """A Spark with all connectors, those for S3 and SQLite's driver among them."""
    drivers = [*JARS.glob("sqlite-jdbc-*")]
    needs("Spark's connectors: scripts/setup-tools spark spark-s3", bool(drivers and [*S3_JARS.glob("*.jar")]))
    jars = [str(jar) for folder in (JARS, S3_JARS) for jar in sorted(folder.glob("*.jar"))]
    more = {
        **OF_SPARK,
        "spark.jars": ",".join(jars),
        # A JDBC driver is looked for by those who do not know what Spark adds later.
        "spark.driver.extraClassPath": str(drivers[0]),
    }
    with spark(NOWHERE, more) as session:
        yield session


@pytest.fixture(scope="package")
def open_session(jvm: Any) -> Open:
    """Opens a session with settings, catalogs and views of its own."""

    def opened(place: Place = NOWHERE, more: Mapping[str, str] = NOTHING_MORE) -> Any:
        session = jvm.newSession()
        for name, value in {**catalog_settings(place), **more}.items():
            session.conf.set(name.removeprefix(OF_HADOOP), value)
        session.createDataFrame([], "none int")  # makes it the active one, whose catalogs `toTable` knows
        return session

    return opened
