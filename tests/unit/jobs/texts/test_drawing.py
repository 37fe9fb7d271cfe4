"""The layout of drawings: boxes do not overlap; lines go to the right and cross no box."""

import random
import re

import pytest

from tussock.jobs.texts.drawing import BOX_HEIGHT, BOX_WIDTH, draw_graph, shorten_middle


@pytest.mark.parametrize("seed", range(5))
def test_boxes_do_not_overlap_and_lines_pass_through_none(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(60)]
    reads = {name: tuple(sorted(chance.sample(names[:i], min(i, chance.randrange(4))))) for i, name in enumerate(names)}
    drawing = draw_graph(reads)
    at = {box.name: box for box in drawing.boxes}
    assert at.keys() == reads.keys()
    for one in drawing.boxes:
        assert 0 <= one.x <= drawing.width - BOX_WIDTH
        assert 0 <= one.y <= drawing.height - BOX_HEIGHT
        for other in drawing.boxes:
            assert one is other or one.x != other.x or abs(one.y - other.y) >= BOX_HEIGHT
    assert {(a, b) for a, b, _ in drawing.lines} == {(a, b) for b, inputs in reads.items() for a in inputs}
    for start, end, path in drawing.lines:
        assert at[start].x + BOX_WIDTH < at[end].x, "a reader is right of its inputs"
        level = [(float(y), float(x)) for y, x in re.findall(r"(\S+)H(\S+?)(?=C|$)", path)]
        for y, x in level:  # the points at which a line passes through a layer
            assert not any(box.x + BOX_WIDTH == x and box.y < y < box.y + BOX_HEIGHT for box in drawing.boxes)


def test_a_graph_of_nothing_and_of_nodes_without_lines_can_be_drawn() -> None:
    assert draw_graph({}).boxes == ()
    assert len({box.y for box in draw_graph({"a": (), "b": ()}).boxes}) == 2


def test_names_that_are_too_long_for_a_box_still_show_their_ends() -> None:
    names = [f"carrier_{n}_worst_routes_of_{m}" for n in range(12) for m in range(12)]
    assert len({shorten_middle(name, 23) for name in names}) == len(names)
    assert {len(shorten_middle(name, 23)) for name in names} == {23}
    assert shorten_middle("carrier_delays", 23) == "carrier_delays"
