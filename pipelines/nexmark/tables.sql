-- The lookup table of query 13. generate.py writes its rows to rows.sql.

CREATE TABLE IF NOT EXISTS side_input (key bigint, value string, PRIMARY KEY (key));
