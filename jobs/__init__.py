"""What Spark runs, and what plans it."""

if __name__ != "tussock.jobs":  # under two names, each class would be two classes
    raise ImportError("the engine is imported as tussock.jobs: put the folder above `tussock/` on the path")
