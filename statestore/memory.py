"""How much memory this process may take, so that caches fit the machine and give way before anything else suffers. Changes no answer."""

from pathlib import Path

RESERVE_BYTES = 512 << 20  # left to what is no cache
_PLENTY = 1 << 50
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")  # of a container; version 2


def whole_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes of memory of the host, or of the container if that has fewer. Where neither is known (not Linux), there is plenty."""
    return min(_of_the_host(meminfo, "MemTotal:"), _limit(cgroup))


def spare_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes that may be taken before less than RESERVE_BYTES are left on the host or in the container; below 0: too much is taken.

    Where neither is known (not Linux), there is plenty. Cost: up to four reads of kernel files, some 50 us.
    """
    return min(_of_the_host(meminfo, "MemAvailable:"), _left_in_the_container(cgroup)) - RESERVE_BYTES


def _of_the_host(meminfo: Path, counter: str) -> int:
    return _counter(meminfo, counter) * 1024 if meminfo.is_file() else _PLENTY


def _limit(cgroup: Path) -> int:
    limit = cgroup / "memory.max"
    return _PLENTY if not limit.is_file() or (most := limit.read_text().strip()) == "max" else int(most)


def _left_in_the_container(cgroup: Path) -> int:
    if (limit := _limit(cgroup)) == _PLENTY:
        return _PLENTY
    taken = int((cgroup / "memory.current").read_text())
    return limit - taken + _counter(cgroup / "memory.stat", "inactive_file")  # the kernel's own cache goes when it must


def _counter(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    return _PLENTY // 1024
