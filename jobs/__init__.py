"""The engine on top of the state store: SQL, plans, epochs, sources, sinks, quality check and command line."""

if __name__ != "tussock.jobs":  # imported under two names, each class would exist twice
    raise ImportError("import the engine as tussock.jobs: put the folder that contains `tussock/` on the path")
