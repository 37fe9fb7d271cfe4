"""The time, sockets, threads and processes that the processes of an epoch use.

world.py       the names by which the rooms reach them; a test may replace them
deadline.py    the end of a wait
"""
