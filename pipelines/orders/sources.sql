-- load.py writes one file of operations per day. Some operations arrive a day late.
CREATE SOURCE IF NOT EXISTS orders (
    id bigint, customer bigint, amount decimal(10,2), status string, changed_at timestamp, op string, PRIMARY KEY (id)
) USING json OPTIONS (path '${data}', changes 'operations', op_column 'op', sequence_by 'changed_at');
