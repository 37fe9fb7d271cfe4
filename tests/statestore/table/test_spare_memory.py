"""How much memory is left, from a kernel's files as they look on a host and in a container."""

from pathlib import Path

from statestore.table.spare_memory import RESERVE_BYTES, spare_memory

MIB = 1 << 20


def test_the_host_and_the_container_both_bound_what_may_be_taken(tmp_path: Path) -> None:
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


def test_the_machine_that_runs_this_has_an_answer() -> None:
    assert -(1 << 50) < spare_memory() <= 1 << 50
