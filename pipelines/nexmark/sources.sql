-- The three streams. generate.py writes one Parquet file per batch, and an epoch reads the waiting files.

CREATE SOURCE IF NOT EXISTS person (
    id bigint, name string, email_address string, credit_card string, city string, state string, date_time timestamp, extra string
) USING parquet OPTIONS (path '${data}/person/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS auction (
    id bigint, item_name string, description string, initial_bid bigint, reserve bigint,
    date_time timestamp, expires timestamp, seller bigint, category bigint, extra string
) USING parquet OPTIONS (path '${data}/auction/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS bid (
    id bigint, auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, extra string
) USING parquet OPTIONS (path '${data}/bid/*.parquet', retain 'none');
