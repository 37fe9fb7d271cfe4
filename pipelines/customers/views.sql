-- Customers by country and segment. A night updates the groups whose customers changed.
CREATE MATERIALIZED VIEW IF NOT EXISTS customers_by_country AS
SELECT country, segment, count(*) AS customers FROM customers GROUP BY country, segment;

-- Open orders by country. An order without its customer counts for no country.
CREATE MATERIALIZED VIEW IF NOT EXISTS open_orders AS
SELECT c.country, count(*) AS orders, sum(o.amount) AS amount, max(o.changed_at) AS last_change
FROM orders o LEFT JOIN customers c ON c.id = o.customer
WHERE o.status = 'open'
GROUP BY c.country;

-- The three customers of each country with the highest amount of paid orders.
CREATE MATERIALIZED VIEW IF NOT EXISTS best_customers AS
SELECT country, name, paid, place FROM (
    SELECT c.country, c.name, p.paid, row_number() OVER (PARTITION BY c.country ORDER BY p.paid DESC, c.id) AS place
    FROM customers c JOIN (
        SELECT customer, sum(amount) AS paid FROM orders WHERE status = 'paid' GROUP BY customer
    ) p ON p.customer = c.id
)
WHERE place <= 3;

-- The history of each order (SCD type 2): one row per interval in which its status or amount stayed the same. A late
-- change rewrites only the intervals of its order.
CREATE FLOW follow_orders AS AUTO CDC INTO order_history FROM order_changes
KEYS (id)
APPLY AS DELETE WHEN op = 'D'
SEQUENCE BY changed_at
COLUMNS (id, customer, amount, status)
STORED AS SCD TYPE 2
TRACK HISTORY ON amount, status;

-- How long orders stayed in a status, in hours. Intervals that have not ended do not count.
CREATE MATERIALIZED VIEW IF NOT EXISTS hours_by_status AS
SELECT status, count(*) AS intervals,
       avg((unix_seconds(`__END_AT`) - unix_seconds(`__START_AT`)) / 3600) AS hours
FROM order_history
WHERE `__END_AT` IS NOT NULL
GROUP BY status;
