-- Orders and amounts by the day of their last change.
CREATE MATERIALIZED VIEW IF NOT EXISTS orders_by_day AS
SELECT CAST(changed_at AS date) AS day, status, count(*) AS orders, sum(amount) AS amount
FROM orders GROUP BY CAST(changed_at AS date), status;

-- One row per open order.
CREATE MATERIALIZED VIEW IF NOT EXISTS open_orders AS
SELECT id, customer, amount, changed_at FROM orders WHERE status = 'open';
