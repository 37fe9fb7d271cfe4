"""What is configured, and what a process says at its edge. Light enough for the DAG parser."""
