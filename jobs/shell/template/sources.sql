-- A source is a set of files that other programs write. Each epoch reads the new files, and each file is read once.
-- {start:…} is the interval of the Airflow run. A run without an interval reads all waiting files.

CREATE SOURCE IF NOT EXISTS orders (
    id bigint,
    at timestamp,
    product string,
    quantity int
) USING csv OPTIONS (path '${data}/orders/{start:%Y-%m-%d}.csv', header 'true');
