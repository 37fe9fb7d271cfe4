"""Reports as text, for the command line, Airflow's tasks and the pages."""
