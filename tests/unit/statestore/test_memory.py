"""Total and available memory, from the kernel's files as a host and a container show them."""

from pathlib import Path

import pytest

from tussock.statestore.hummock.cache import block_cache_bytes
from tussock.statestore.memory import RESERVE_BYTES, spare_memory, whole_memory

MIB = 1 << 20


def test_the_host_and_the_container_both_limit_the_memory(tmp_path: Path) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    assert spare_memory(meminfo, cgroup) > 1 << 40
    meminfo.write_text("MemTotal:  4194304 kB\nMemAvailable:  2097152 kB\n")
    assert spare_memory(meminfo, cgroup) == 2048 * MIB - RESERVE_BYTES
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n")
    assert spare_memory(meminfo, cgroup) == 2048 * MIB - RESERVE_BYTES
    (cgroup / "memory.max").write_text(f"{1024 * MIB}\n")
    (cgroup / "memory.current").write_text(f"{1000 * MIB}\n")
    (cgroup / "memory.stat").write_text(f"anon 5\ninactive_file {300 * MIB}\nactive_file 7\n")
    assert spare_memory(meminfo, cgroup) == 324 * MIB - RESERVE_BYTES < 0


def test_available_memory_is_the_smaller_of_host_and_container(tmp_path: Path) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    assert whole_memory(meminfo, cgroup) > 1 << 40
    meminfo.write_text("MemTotal:  4194304 kB\nMemAvailable:  2097152 kB\n")
    assert whole_memory(meminfo, cgroup) == 4096 * MIB
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n")
    assert whole_memory(meminfo, cgroup) == 4096 * MIB
    (cgroup / "memory.max").write_text(f"{1024 * MIB}\n")
    assert whole_memory(meminfo, cgroup) == 1024 * MIB


@pytest.mark.parametrize(
    ("memory", "cache"), [(1 << 50, 1024), (16 << 30, 1024), (8 << 30, 512), (4 << 30, 256), (1 << 30, 256)]
)
def test_a_process_caches_blocks_in_a_sixteenth_of_the_memory_within_bounds(memory: int, cache: int) -> None:
    assert block_cache_bytes(memory) == cache * MIB


def test_the_machine_that_runs_this_has_an_answer() -> None:
    assert -(1 << 50) < spare_memory() <= 1 << 50
