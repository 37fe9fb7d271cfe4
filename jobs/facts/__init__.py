"""Facts about a store and its pipeline: plain data, apart from how anybody prints them. One module a subject.

The command line, pages, metrics and tests read these structs; each number is computed in one place. All encode as JSON. Times are UTC.
Functions take the MetaStore where they read the store, and say what that costs; nothing here changes a store.
"""
