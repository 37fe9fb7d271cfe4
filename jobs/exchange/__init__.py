"""The exchange of cells between the processes of one epoch, over sockets.

    channel.py    a connection, in clear or sealed
    tls.py        keys of an epoch, for TLS
    door.py       a listening socket: introductions, side by side
    meeting.py    the processes of an epoch find each other
    peers.py      connections, frames, end marks, heartbeats
    mailbox.py    received cells: in memory, then on the local disk

No Spark, no store: the processes may be tasks of a Spark stage or workers on one host.
"""
