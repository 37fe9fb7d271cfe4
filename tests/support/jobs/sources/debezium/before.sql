CREATE TABLE customers (
  id bigint PRIMARY KEY, name text, city varchar(20), balance numeric(10,2), born date, at timestamp, at_ms timestamp(3),
  seen timestamptz, score double precision, ratio real, active boolean, n int, small smallint, tag uuid, doc bytea,
  notes jsonb);
INSERT INTO customers VALUES
  (1, 'Anna', 'Bern', 12.50, '1990-02-03', '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05.678',
   '2026-01-02 03:04:05.678901+02', 1.5, 0.25, true, 7, 3, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\x00ff10',
   '{"a": [1, null]}'),
  (2, 'Bruno "B" Ä', NULL, -0.01, '1899-12-31', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999',
   '1969-12-31 23:59:59.999999+00', 'Infinity', NULL, false, -1, -3, NULL, NULL, NULL),
  (3, 'Edel', 'Chur', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
