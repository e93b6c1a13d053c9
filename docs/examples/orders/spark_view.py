"""Spark computes the view in SQL, from orders and customers at one time, and compares it with the view that was kept.

PYSPARK_PYTHON=$(which python) python docs/examples/orders/spark_view.py URL TIME
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import places
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slate_async import spark as slate_spark


def computed(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Revenue per customer of these keys and values."""
    bought = orders.select(F.from_json(F.col("value").cast("string"), "customer string, cents bigint").alias("order"))
    named = customers.select(
        F.substring_index(F.col("key").cast("string"), "/", -1).alias("customer"),
        F.get_json_object(F.col("value").cast("string"), "$.name").alias("name"),
    )
    sums = bought.groupBy("order.customer").agg(F.count("*").alias("orders"), F.sum("order.cents").alias("cents"))
    return named.join(sums, "customer").select("customer", "name", "orders", "cents")


def compare(spark: SparkSession, url: str, as_of: int) -> int:
    """How many customers the view has at that time. Raises AssertionError if Spark computes another one."""
    with ExitStack() as stack:
        names = (places.ORDERS, places.CUSTOMERS, places.REVENUE)
        orders, customers, kept = (
            stack.enter_context(slate_spark.reading_collection(spark, places.lake(url), name, asOf=as_of))
            for name in names
        )
        view = {tuple(row) for row in kept.select("customer", "name", "orders", "cents").collect()}
        assert view == {tuple(row) for row in computed(orders, customers).collect()}
    return len(view)


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    found = compare(session, sys.argv[1], int(sys.argv[2]))
    print(f"Spark computes the same view of {found} customers at {sys.argv[2]}")
    session.stop()
