-- What query 13 looks bids up in. Its rows are in rows.sql, which generate.py writes.

CREATE TABLE IF NOT EXISTS side_input (key bigint, value string, PRIMARY KEY (key));
