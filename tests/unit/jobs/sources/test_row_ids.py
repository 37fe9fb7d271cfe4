"""A row id contains the number of a file and a position in it."""

import random

import numpy as np

from tussock.jobs.sources.row_ids import file_of, pack_row_ids, position_of


def test_a_row_id_is_the_number_times_2_to_the_40_plus_the_position() -> None:
    draw = random.Random(7)
    for number in (0, 1, 3, 2**23 - 1, *(draw.randrange(2**23) for _ in range(20))):
        positions = [0, 1, 2**40 - 1, *(draw.randrange(2**40) for _ in range(20))]
        packed = pack_row_ids(number, np.array(positions, np.int64))
        assert packed.to_pylist() == [number * 2**40 + position for position in positions]
        assert file_of(packed.to_numpy()).tolist() == [number] * len(positions)
        assert position_of(packed.to_numpy()).tolist() == positions
        assert [(file_of(i), position_of(i)) for i in packed.to_pylist()] == [
            (number, position) for position in positions
        ]
