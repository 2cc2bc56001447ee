"""The beginning of programs that read our REST catalog by Spark's own Iceberg connector, in processes of their own."""

from pathlib import Path

from tests.support.jvm import OF_SPARK

JARS = sorted((Path(__file__).parents[2] / ".tools" / "spark" / "jars").glob("iceberg-spark-runtime-*.jar"))

SESSION = f"""\
import json, sys
from pyspark.sql import SparkSession

settings = {{
    "spark.jars": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    **{OF_SPARK},
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.headwater": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.headwater.type": "rest",
    "spark.sql.catalog.headwater.uri": sys.argv[2],
}}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""
