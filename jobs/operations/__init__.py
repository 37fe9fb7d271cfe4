"""Operations on a pipeline, shared by the command line, Airflow's tasks, the pages and the Spark jobs."""
