"""A simulated world for the engine: real code over a simulated network, disk, clock and scheduler, with one seed.

    python -m tests.support.simulation                       2,000 seeds, as in CI
    python -m tests.support.simulation --seed 17 --trace     one seed, with each of its events
    python -m tests.support.simulation --seeds 200000        as in `make test-deep`

    __main__.py     the command
    story.py        a seed: its processes, its faults, its checks
    model.py        what readers must see, in plain Python
    cluster.py      executors, slots and barrier stages, as Spark has them
    engine.py       the engine in the simulation: which of its memory belongs to a process
    modules.py      simulated modules (os, time, …) and how the engine gets them
    threads.py      simulated `_thread`; files.py, sockets.py, subprocesses.py: `open`, `socket`, `subprocess`
    system.py       the machine, and what makes a function a call to it; the calls on clocks
    descriptors.py  the calls behind the modules; paths.py, processes.py, polling.py, connections.py: more of them
    disk.py         page cache, fsync, power failures
    network.py      streams: buffers, delays, ends, resets, black holes
    scheduler.py    threads as greenlets, virtual time, the digest of a history

docs/design/simulation.md explains why it is built in this way.
"""
