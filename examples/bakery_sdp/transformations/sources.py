"""The files of the tills and of the bakery's shops."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table(comment="orders, as the tills deliver them")
def raw_orders():
    columns = "id bigint, shop_id bigint, customer_id bigint, ordered_at timestamp, status string"
    return spark.readStream.schema(columns).option("header", True).csv("data/orders")


@dp.table
def raw_order_lines():
    columns = "id bigint, order_id bigint, sku string, quantity bigint"
    return spark.readStream.schema(columns).option("header", True).csv("data/order_lines")


@dp.table(comment="names and prices; a change is another row")
def raw_products():
    columns = "sku string, name string, kind string, price_cents bigint, changed_at timestamp"
    return spark.readStream.schema(columns).option("header", True).csv("data/products")


@dp.temporary_view
def shops():
    return spark.read.csv("data/shops", header=True, inferSchema=True)


@dp.temporary_view
def customers():
    return spark.read.csv("data/customers", header=True, inferSchema=True)
