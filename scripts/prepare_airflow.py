"""Add the connection `spark_default`, which the DAGs need, to Airflow's database.

Nothing that exists is changed: a `spark_default` that points to a cluster stays so.
"""

import sys
from pathlib import Path

from airflow.models import Connection
from airflow.utils.session import create_session
from sqlalchemy import select

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "plugins"))

from tussock_tasks import SPARK_CONNECTION  # noqa: E402

# The second number lets Spark retry a task; plain local[2] retries nothing.
LOCAL_SPARK = Connection(
    conn_id=SPARK_CONNECTION, conn_type="spark", host="local[2,4]", extra='{"deploy-mode": "client"}'
)


def main() -> None:
    with create_session() as session:
        if session.scalar(select(Connection).where(Connection.conn_id == SPARK_CONNECTION)) is None:
            session.add(LOCAL_SPARK)
            print(f"connection {SPARK_CONNECTION}: {LOCAL_SPARK.host}")


if __name__ == "__main__":
    main()
