CREATE MATERIALIZED VIEW branches AS
  SELECT branch, count(*) AS accounts, sum(balance) AS balance FROM accounts GROUP BY branch;

CREATE MATERIALIZED VIEW transfers_by_day AS
  SELECT cast(t.at AS date) AS day, a.branch, count(*) AS transfers, sum(t.amount) AS amount
  FROM transfers t JOIN accounts a ON t.giver = a.id
  GROUP BY cast(t.at AS date), a.branch;
