-- The eight tables. load.py writes them as Parquet files, and an epoch reads the waiting files.

CREATE SOURCE IF NOT EXISTS region (r_regionkey bigint, r_name string, r_comment string)
USING parquet OPTIONS (path '${data}/region/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS nation (n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string)
USING parquet OPTIONS (path '${data}/nation/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS supplier (
    s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, s_acctbal decimal(15,2), s_comment string
) USING parquet OPTIONS (path '${data}/supplier/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS customer (
    c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, c_acctbal decimal(15,2),
    c_mktsegment string, c_comment string
) USING parquet OPTIONS (path '${data}/customer/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS part (
    p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, p_container string,
    p_retailprice decimal(15,2), p_comment string
) USING parquet OPTIONS (path '${data}/part/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS partsupp (
    ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string
) USING parquet OPTIONS (path '${data}/partsupp/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS orders (
    o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, o_orderpriority string,
    o_clerk string, o_shippriority int, o_comment string
) USING parquet OPTIONS (path '${data}/orders/*.parquet', retain 'none');

CREATE SOURCE IF NOT EXISTS lineitem (
    l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), l_extendedprice decimal(15,2),
    l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, l_linestatus string, l_shipdate date, l_commitdate date,
    l_receiptdate date, l_shipinstruct string, l_shipmode string, l_comment string
) USING parquet OPTIONS (path '${data}/lineitem/*.parquet', retain 'none');
