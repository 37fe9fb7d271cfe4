-- Sources are files that others write. An epoch takes in those that are new; a file that was taken is never read again.
-- {start:…} is filled in from the interval of an Airflow run. Runs by hand, without an interval, take whatever waits.

CREATE SOURCE IF NOT EXISTS orders (
    id bigint,
    at timestamp,
    product string,
    quantity int
) USING csv OPTIONS (path '${data}/orders/{start:%Y-%m-%d}.csv', header 'true');
