"""Configuration: pipeline.toml, environment variables, and values that a process sets once.

The DAG parser imports these modules, so they must stay light.
"""
