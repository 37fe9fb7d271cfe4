"""Layout of a graph: layers from left to right, each box to the right of its inputs.

1. layers    longest path from the nodes without inputs; these then move to the layer before their first reader
2. bends     a line that crosses layers gets a point in each; later steps treat a bend like a box
3. order     within a layer by the mean position of neighbours, in alternating sweeps, so that few lines cross
4. places    each layer moves to the mean height of its neighbours, without overlaps
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

BOX_WIDTH, BOX_HEIGHT = 196, 46
COLUMN, ROW = BOX_WIDTH + 64, BOX_HEIGHT + 16
BEND_ROW = 18  # height in a layer of a line that crosses it
MARGIN = 8
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Box:
    """A node's upper left corner, in pixels."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawn graph: boxes, SVG paths of the lines with the names at both ends, and the total size in pixels."""

    boxes: tuple[Box, ...]
    lines: tuple[tuple[str, str, str], ...]  # (from, to, path)
    width: float
    height: float


@dataclass(slots=True)
class _Place:
    layer: int
    bend: bool
    before: list[str]
    after: list[str]
    y: float = 0.0

    @property
    def height(self) -> int:
        """Height in its layer, including the gap below."""
        return BEND_ROW if self.bend else ROW

    @property
    def half(self) -> float:
        """Distance from its upper edge to the point where lines attach."""
        return BEND_ROW / 2 if self.bend else BOX_HEIGHT / 2

    @property
    def middle(self) -> float:
        return self.y + self.half


def draw_graph(reads: Mapping[str, Sequence[str]]) -> Drawing:
    """Place the nodes of a graph.

    Args:
        reads: the inputs of each node, in topological order (inputs first).

    Cost: O(sweeps x lines); 100 nodes take a few milliseconds.
    """
    places = _assign_layers(reads)
    chains = _with_bends(places, reads)
    layers = _order_layers(places)
    _settle_heights(places, layers)
    boxes = {n: Box(n, MARGIN + p.layer * COLUMN, p.y) for n, p in places.items() if not p.bend}
    lines = tuple((chain[0], chain[-1], _line_path([places[n] for n in chain])) for chain in chains)
    width = max((box.x for box in boxes.values()), default=0) + BOX_WIDTH + MARGIN
    height = max((p.y for p in places.values()), default=0) + BOX_HEIGHT + MARGIN
    return Drawing(tuple(boxes.values()), lines, width, height)


def _assign_layers(reads: Mapping[str, Sequence[str]]) -> dict[str, _Place]:
    layer: dict[str, int] = {}
    readers: dict[str, list[str]] = {name: [] for name in reads}
    for name, inputs in reads.items():
        layer[name] = 1 + max((layer[i] for i in inputs), default=-1)
        for i in inputs:
            readers[i].append(name)
    for name, inputs in reads.items():
        if not inputs and readers[name]:
            layer[name] = min(layer[r] for r in readers[name]) - 1
    return {name: _Place(layer[name], False, [], []) for name in reads}


def _with_bends(places: dict[str, _Place], reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Insert a bend into each layer that a line crosses. Return the lines as chains of names."""
    chains = []
    for name, inputs in reads.items():
        for i in inputs:
            passed = range(places[i].layer + 1, places[name].layer)
            bends = [f"{i}\0{name}\0{layer}" for layer in passed]  # cannot equal a relation's name
            places.update({bend: _Place(layer, True, [], []) for bend, layer in zip(bends, passed, strict=True)})
            chain = [i, *bends, name]
            for one, other in pairwise(chain):
                places[one].after.append(other)
                places[other].before.append(one)
            chains.append(chain)
    return chains


def _order_layers(places: Mapping[str, _Place]) -> list[list[str]]:
    layers: list[list[str]] = [[] for _ in range(1 + max((p.layer for p in places.values()), default=0))]
    for name, place in places.items():
        layers[place.layer].append(name)
    rank = {name: float(n) for layer in layers for n, name in enumerate(layer)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers if forward else reversed(layers):
            wanted = {}
            for name in layer:
                near = places[name].before if forward else places[name].after
                wanted[name] = sum(rank[n] for n in near) / len(near) if near else rank[name]
            layer.sort(key=lambda name: (wanted[name], rank[name]))
            rank.update({name: float(n) for n, name in enumerate(layer)})
    return layers


def _settle_heights(places: Mapping[str, _Place], layers: Sequence[Sequence[str]]) -> None:
    for layer in layers:
        y = 0.0
        for name in layer:
            places[name].y = y
            y += places[name].height
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _move_boxes(places, layer)
    top = min((p.y for p in places.values()), default=0.0)
    for place in places.values():
        place.y += MARGIN - top


def _move_boxes(places: Mapping[str, _Place], layer: Sequence[str]) -> None:
    """Move a layer's boxes to the mean height of their neighbours; boxes that would overlap move together."""
    runs: list[tuple[list[str], float, float]] = []  # names, wanted y of the first, total height
    for name in layer:
        near = places[name].before + places[name].after
        wants = sum(places[n].middle for n in near) / len(near) - places[name].half if near else places[name].y
        names, start, height = [name], wants, float(places[name].height)
        while runs and runs[-1][1] + runs[-1][2] > start:  # a run of boxes that touch moves as one
            above, above_start, above_height = runs.pop()
            start = (above_start * len(above) + (start - above_height) * len(names)) / (len(above) + len(names))
            names, height = above + names, above_height + height
        runs.append((names, start, height))
    for names, y, _ in runs:
        for name in names:
            places[name].y = y
            y += places[name].height


def _line_path(chain: Sequence[_Place]) -> str:
    """A path from the right side of the first box to the left side of the last, level within each crossed layer."""
    x, y = MARGIN + chain[0].layer * COLUMN + BOX_WIDTH, chain[0].middle
    parts = [f"M{x:g} {y:.1f}"]
    for place in chain[1:]:
        left = MARGIN + place.layer * COLUMN
        half_way, to = (x + left) / 2, place.middle
        parts.append(f"C{half_way:g} {y:.1f} {half_way:g} {to:.1f} {left:g} {to:.1f}")
        x, y = left, to
        if place.bend:
            x += BOX_WIDTH
            parts.append(f"H{x:g}")
    return "".join(parts)


def shorten_middle(text: str, most: int) -> str:
    """Shorten a text to `most` characters by cutting its middle, since names of related views differ at the end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"
