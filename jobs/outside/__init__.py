"""What an epoch's processes share with the rest of the world: its time, sockets, threads and processes.

world.py       the names by which the rooms reach them; a test may replace them
deadline.py    the end of a wait
"""
