"""approx_count_distinct in plain Python, for one small precision."""

import math
from collections.abc import Iterable

import xxhash

SKETCH = {"precision": "4", "threshold": "10.0", "estimates": "1.0,2.0,3.0,4.0,5.0,6.0,7.0", "biases": "0,0,0,0,0,0,0"}


def estimate(values: Iterable[int]) -> int:
    """HyperLogLog with sixteen registers and all bias tables 0."""
    registers = [0] * 16
    for value in values:
        hashed = xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), 42)
        register, rest = hashed >> 60, (hashed << 4 | 8) % 2**64
        registers[register] = max(registers[register], 65 - rest.bit_length())
    zeros = registers.count(0)
    linear = 16 * math.log(16 / zeros) if zeros else math.inf
    raw = 0.673 * 16 * 16 / sum(2.0**-r for r in registers)
    return math.floor((linear if linear <= 10 else raw) + 0.5)
