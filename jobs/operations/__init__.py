"""What can be done with a pipeline: the command line, Airflow's tasks, the pages and the jobs all do it through here."""
