-- A materialized view is a Spark SELECT that is kept up to date, at the cost of the changes.
-- `tussock explain --pipeline @name@` shows how each view is maintained, and the cost of an epoch.

-- Orders and revenue per day.
CREATE MATERIALIZED VIEW IF NOT EXISTS daily_sales AS
SELECT CAST(o.at AS date) AS day,
       count(*) AS orders,
       sum(o.quantity * p.price) AS revenue
FROM orders o JOIN products p ON o.product = p.product
GROUP BY CAST(o.at AS date);

-- Sales per product, including products without an order.
CREATE MATERIALIZED VIEW IF NOT EXISTS product_sales AS
SELECT p.category, p.product,
       count(o.id) AS orders,
       coalesce(sum(o.quantity), 0) AS pieces,
       coalesce(sum(o.quantity), 0) * p.price AS revenue
FROM products p LEFT JOIN orders o ON o.product = p.product
GROUP BY p.category, p.product, p.price;

-- A view over a view: the best seller of each category.
CREATE MATERIALIZED VIEW IF NOT EXISTS best_sellers AS
SELECT category, product, revenue
FROM (
    SELECT category, product, revenue, row_number() OVER (PARTITION BY category ORDER BY revenue DESC, product) AS place
    FROM product_sales
)
WHERE place = 1;
