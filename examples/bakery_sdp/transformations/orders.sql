CREATE TEMPORARY VIEW products AS
SELECT sku, name AS product, kind, CAST(price_cents / 100 AS DECIMAL(10, 2)) AS price
FROM (SELECT *, row_number() OVER (PARTITION BY sku ORDER BY changed_at DESC) AS position FROM raw_products)
WHERE position = 1;

-- The tills write every order; tests of the tills have no lines.
CREATE MATERIALIZED VIEW order_totals
COMMENT 'orders with their lines at the present prices'
AS WITH totals AS (
  SELECT l.order_id, sum(l.quantity) AS items, sum(l.quantity * p.price) AS total
  FROM raw_order_lines l JOIN products p ON p.sku = l.sku
  GROUP BY l.order_id
)
SELECT o.id AS order_id, o.shop_id, o.customer_id, o.ordered_at, t.items, t.total
FROM raw_orders o JOIN totals t ON t.order_id = o.id
WHERE o.status <> 'returned' AND t.items >= ${bakery.least_items};

CREATE STREAMING TABLE returned_orders;

CREATE FLOW returned AS INSERT INTO returned_orders BY NAME
SELECT id AS order_id, shop_id, ordered_at FROM STREAM raw_orders WHERE status = 'returned';
