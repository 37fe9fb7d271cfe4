"""What is wrong with pipeline definitions, as the import error of this file, which makes no DAG.

Airflow takes all DAGs of a file away when the file raises. So the files that make them leave a broken pipeline out, and this one says why.
"""

from tussock_steps import BrokenPipelinesError, definitions

if errors := definitions().errors:
    raise BrokenPipelinesError(errors)
