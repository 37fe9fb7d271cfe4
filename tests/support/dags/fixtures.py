"""An Airflow home of the tests' own: set before Airflow is imported, for it reads its settings then."""

import os
import tempfile
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="tussock-airflow-"))
os.environ["AIRFLOW_HOME"] = str(HOME)
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(Path(__file__).resolve().parents[3] / "plugins")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{HOME}/airflow.db"
