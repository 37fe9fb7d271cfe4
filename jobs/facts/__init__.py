"""Facts about a store and its pipeline: plain data, independent of its presentation. One module per subject.

The command line, pages, metrics and tests read these structs, and each number is computed in one place. All encode as
JSON. Times are UTC. Functions that read the store take the MetaStore and document their cost. Nothing in this package
changes a store.
"""
