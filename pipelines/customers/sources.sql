-- load.py writes both feeds, one night after the other.

-- All customers, every night, in several files. A night counts once its folder contains _SUCCESS.
CREATE SOURCE IF NOT EXISTS customers (id bigint, name string, country string, segment string, PRIMARY KEY (id))
USING json OPTIONS (path '${data}/customers/{night}', changes 'snapshot', snapshot_done '_SUCCESS',
                    delete_limit '20%', may_be_missing 'true');

-- The changes of orders, as a replication service writes them. Some arrive late.
CREATE SOURCE IF NOT EXISTS orders (
    id bigint, customer bigint, amount decimal(10,2), status string, changed_at timestamp, op string, PRIMARY KEY (id)
) USING json OPTIONS (path '${data}/orders', changes 'operations', op_column 'op', sequence_by 'changed_at',
                      may_be_missing 'true');

-- The same files as changes: each record stays a row, so that a flow can keep the history.
CREATE SOURCE IF NOT EXISTS order_changes (
    id bigint, customer bigint, amount decimal(10,2), status string, changed_at timestamp, op string
) USING json OPTIONS (path '${data}/orders', may_be_missing 'true');
