"""Report errors in pipeline definitions as the import error of this file, which creates no DAG.

Airflow removes all DAGs of a file that raises. So the other DAG files omit broken pipelines, and only this file raises.
"""

from tussock_steps import BrokenPipelinesError, read_definitions

if errors := read_definitions().errors:
    raise BrokenPipelinesError(errors)
