"""Put into Airflow's database what the DAGs need: the connection `spark_default` and one pool of one slot per pipeline.

Nothing that exists is changed: whoever points `spark_default` to a cluster keeps it so.
"""

import sys
from pathlib import Path

from airflow.models import Connection, Pool
from airflow.utils.session import create_session
from sqlalchemy import select

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "plugins"))

from tussock_operators import SPARK_CONNECTION, pool_of  # noqa: E402
from tussock_steps import pipelines_folder  # noqa: E402

from jobs.settings.pipeline import pipeline_names  # noqa: E402

# The second number lets Spark retry a task; plain local[2] retries nothing.
LOCAL_SPARK = Connection(conn_id=SPARK_CONNECTION, conn_type="spark", host="local[2,4]", extra='{"deploy-mode": "client"}')


def main() -> None:
    with create_session() as session:
        if session.scalar(select(Connection).where(Connection.conn_id == SPARK_CONNECTION)) is None:
            session.add(LOCAL_SPARK)
            print(f"connection {SPARK_CONNECTION}: {LOCAL_SPARK.host}")
    for name in pipeline_names(pipelines_folder()):
        Pool.create_or_update_pool(pool_of(name), slots=1, description=f"Serialises the runs of {name}", include_deferred=True)
        print(f"pool {pool_of(name)}: 1 slot")


if __name__ == "__main__":
    main()
