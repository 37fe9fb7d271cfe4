"""Memory that this process may use. Caches size themselves by it and shrink before other work runs out of memory."""

from dataclasses import dataclass
from pathlib import Path

RESERVE_BYTES = 512 << 20  # left for everything except caches
_PLENTY = 1 << 50
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")  # the container's limits; cgroup version 2


_LEAST_SHARE = 8 << 20


@dataclass(slots=True)
class MemoryLimit:
    """The memory that a setting allows this process for rows; None: no setting."""

    nbytes: int | None = None

    def limit_share(self, most: int, part: int) -> int:
        """The bytes that one use of memory may take: `most`, or 1/`part` of the limit if this is less."""
        return most if self.nbytes is None else min(most, max(_LEAST_SHARE, self.nbytes // part))


memory_limit = MemoryLimit()


def whole_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Memory in bytes of the host or the container, whichever has less; 1 PiB if unknown (not Linux)."""
    return min(_of_the_host(meminfo, "MemTotal:"), _memory_limit(cgroup))


def spare_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes that caches may still take before the host or the container has less than RESERVE_BYTES free.

    Negative if the reserve is already used; about 1 PiB if the memory is unknown (not Linux).
    Cost: up to four reads of kernel files, about 50 us.
    """
    return min(_of_the_host(meminfo, "MemAvailable:"), _left_in_the_container(cgroup)) - RESERVE_BYTES


def _of_the_host(meminfo: Path, counter: str) -> int:
    return _read_counter(meminfo, counter) * 1024 if meminfo.is_file() else _PLENTY


def _memory_limit(cgroup: Path) -> int:
    limit = cgroup / "memory.max"
    return _PLENTY if not limit.is_file() or (most := limit.read_text().strip()) == "max" else int(most)


def _left_in_the_container(cgroup: Path) -> int:
    if (limit := _memory_limit(cgroup)) == _PLENTY:
        return _PLENTY
    taken = int((cgroup / "memory.current").read_text())
    # The kernel drops inactive pages of its file cache under pressure.
    return limit - taken + _read_counter(cgroup / "memory.stat", "inactive_file")


def _read_counter(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    return _PLENTY // 1024
