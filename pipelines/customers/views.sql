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
