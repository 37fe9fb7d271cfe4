"""A drawing of the fragments of an epoch as one SVG file, for `tussock explain --svg`.

Boxes stand to the right of the fragments that they read, and a shared fragment is one box. Its tooltip lists the
operators. The file contains its colours for light and dark backgrounds and needs no other file.
"""

from collections.abc import Collection, Sequence
from html import escape

from tussock.jobs.facts.graph import FragmentFacts
from tussock.jobs.texts.drawing import BOX_HEIGHT, BOX_WIDTH, Box, draw_graph, shorten_middle

_STYLE = """\
svg { font-family: system-ui, sans-serif; background: #ffffff; }
path { fill: none; stroke: #6b7280; stroke-width: 1.3; opacity: .6; }
rect { fill: #f8fafc; stroke: #cbd5e1; stroke-width: 1.2; }
text { fill: #0f172a; font-size: 12.5px; font-weight: 600; }
.kind { fill: #64748b; font-size: 11px; font-weight: 400; }
.wanted rect { stroke: #2563eb; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  svg { background: #0f172a; }
  path { stroke: #94a3b8; }
  rect { fill: #1e293b; stroke: #475569; }
  text { fill: #f1f5f9; }
  .kind { fill: #94a3b8; }
  .wanted rect { stroke: #60a5fa; }
}"""


def plan_svg(fragments: Sequence[FragmentFacts], wanted: Collection[str]) -> str:
    """Return the drawing as the text of an SVG file.

    Args:
        fragments: each after the fragments that it reads.
        wanted: names of relations whose fragments get a coloured border.
    """
    drawing = draw_graph({str(f.id): tuple(map(str, f.reads)) for f in fragments})
    by_id = {str(f.id): f for f in fragments}
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(', '.join(wanted))}</title>",
            f"<style>\n{_STYLE}\n</style>",
            *(f'<path d="{path}"/>' for _, _, path in drawing.lines),
            *(_box_svg(box, by_id[box.name], wanted) for box in drawing.boxes),
            "</svg>\n",
        ]
    )


def _box_svg(at: Box, fragment: FragmentFacts, wanted: Collection[str]) -> str:
    more = len(fragment.operators) - 1
    last = fragment.operators[-1].split()[0] + (f" + {more}" if more else "")
    kind = f' class="{"wanted" if fragment.relation in wanted else "read"}"'
    operators = "\n".join(
        [f"{fragment.relation}: level {fragment.level}, {fragment.actors}", *fragment.operators, *fragment.tables]
    )
    return (
        f'<g{kind} transform="translate({at.x:.0f} {at.y:.1f})"><title>{escape(operators)}</title>'
        f'<rect width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7"/>'
        f'<text x="10" y="20">{escape(shorten_middle(fragment.relation, 23))}</text>'
        f'<text class="kind" x="10" y="36">{escape(shorten_middle(f"fragment {fragment.id} · {last}", 32))}</text></g>'
    )
