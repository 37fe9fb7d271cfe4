"""The drawing of fragments: valid XML, one box per fragment, one line per input, and texts from outside escaped."""

from xml.etree import ElementTree

from tussock.jobs.facts.graph import FragmentFacts
from tussock.jobs.texts.plan_svg import plan_svg

SVG = "{http://www.w3.org/2000/svg}"


def fragment(number: int, relation: str, *reads: int, operators: tuple[str, ...] = ("Project c0",)) -> FragmentFacts:
    return FragmentFacts(number, len(reads), relation, "an actor per unit", operators, reads, ())


def test_a_shared_fragment_is_one_box_that_both_readers_are_drawn_from() -> None:
    found = [
        fragment(0, "orders"),
        fragment(1, "by_day", 0),
        fragment(2, "by_shop", 0, operators=("A", "HashAgg c1 < 3")),
    ]
    root = ElementTree.fromstring(plan_svg(found, ["by_day", "by_shop"]))
    assert len(root.findall(f"{SVG}path")) == 2
    boxes = root.findall(f"{SVG}g")
    assert [(box.get("class"), [text.text for text in box.iter(f"{SVG}text")]) for box in boxes] == [
        ("read", ["orders", "fragment 0 · Project"]),
        ("wanted", ["by_day", "fragment 1 · Project"]),
        ("wanted", ["by_shop", "fragment 2 · HashAgg + 1"]),
    ]
    assert boxes[2].findtext(f"{SVG}title") == "by_shop: level 1, an actor per unit\nA\nHashAgg c1 < 3"


def test_names_and_constants_cannot_add_elements() -> None:
    text = plan_svg([fragment(0, "<script>&", operators=("Filter c0 = '</title><script>'",))], ["<script>&"])
    names = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(text).iter()}
    assert names == {"svg", "title", "style", "g", "rect", "text"}


def test_no_fragments_make_an_empty_drawing() -> None:
    assert not ElementTree.fromstring(plan_svg([], [])).findall(f"{SVG}g")
