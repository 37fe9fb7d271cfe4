"""The tables that people read."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.materialized_view(comment="revenue by day and shop")
def daily_sales():
    orders = spark.read.table("order_totals").withColumn("day", F.to_date("ordered_at"))
    shops = spark.read.table("shops").select(F.col("id").alias("shop_id"), F.col("name").alias("shop"))
    return (
        orders.join(shops, "shop_id")
        .groupBy("day", "shop")
        .agg(F.count("*").alias("orders"), F.sum("total").alias("revenue"))
    )


@dp.materialized_view
def best_products():
    lines = spark.read.table("raw_order_lines").join(spark.read.table("products"), "sku")
    sold = lines.groupBy("kind", "sku").agg(F.sum(F.col("quantity") * F.col("price")).alias("amount"))
    by_kind = Window.partitionBy("kind").orderBy(F.desc("amount"))
    return sold.withColumn("place", F.rank().over(by_kind)).where("place <= 2")


@dp.materialized_view
def customer_totals():
    return spark.sql("""
        SELECT c.id AS customer_id, c.full_name, count(o.order_id) AS orders, coalesce(sum(o.total), 0) AS spent,
               min(o.ordered_at) AS first_order_at, max(o.ordered_at) AS last_order_at
        FROM customers c LEFT JOIN order_totals o ON o.customer_id = c.id
        GROUP BY c.id, c.full_name
    """)
