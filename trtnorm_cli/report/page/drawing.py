"""Drawings of a few nodes: boxes and lines, laid out from top to bottom by grandalf (Sugiyama's method).

Changes that look alike share one outline, in which only the names differ, so that a page with hundreds of them stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.page.words import counted
from trtnorm_cli.rewrite.region import RegionNode

_WIDTH, _HEIGHT = 176, 46
_PILL_HEIGHT, _NOTE_HEIGHT = 26, 15
_GAP_X, _GAP_Y, _MARGIN = 18, 26, 6
_LONGEST_NAME, _LONGEST_OPERATOR = 25, 22
_MOST_NODES = 60
# Drawings up to this width are made smaller where they do not fit; wider ones are scrolled.
_WIDEST_TO_FIT = 580


@dataclass(frozen=True)
class Box:
    """A box with its upper left corner. ``kind`` is ``node``, or ``tensor`` for what comes in or goes out.

    ``label`` is the operator, ``note`` says how many constants it reads.
    """

    kind: str
    label: str
    note: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Outline:
    """All of a drawing but the names. ``lines`` are the points of the edges."""

    key: str
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def fits(self) -> bool:
        """True where it can be read when it is made as narrow as a phone."""
        return self.width <= _WIDEST_TO_FIT


@dataclass(frozen=True)
class Label:
    """A name in a drawing, shortened to fit, and the middle of its text."""

    text: str
    x: float
    y: float


@dataclass(frozen=True)
class Drawing:
    """An outline with the names in it, and in words what it shows."""

    outline: Outline
    labels: tuple[Label, ...]
    words: str


@dataclass
class Drawings:
    """The drawings of a page. ``outlines`` are those that they share, by structure."""

    outlines: dict[tuple[object, ...], Outline] = field(default_factory=dict)

    def of(self, nodes: Sequence[RegionNode], constants: Mapping[str, str], title: str) -> Drawing | None:
        """The drawing of ``nodes``; None where they are none, or too many to be looked at."""
        if not 0 < len(nodes) <= _MOST_NODES:
            return None
        graph = _graph(nodes, constants)
        if graph.structure not in self.outlines:
            self.outlines[graph.structure] = _laid_out(graph, f"g{len(self.outlines)}")
        outline = self.outlines[graph.structure]
        labels = tuple(_label(box, name) for box, name in zip(outline.boxes, graph.names, strict=True))
        words = f"{title}: {' → '.join(node.operator for node in nodes)}"
        return Drawing(outline, labels, words)


@dataclass(frozen=True)
class _Graph:
    """Boxes by number: what comes in, the nodes, what goes out. ``kinds`` are kind, label and note of each."""

    kinds: tuple[tuple[str, str, str], ...]
    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def structure(self) -> tuple[object, ...]:
        return self.kinds, self.edges


def _graph(nodes: Sequence[RegionNode], constants: Mapping[str, str]) -> _Graph:
    """The graph of ``nodes``. Constants are no boxes: they belong to the node that reads them."""
    made = {name for node in nodes for name in node.outputs if name}
    read = {name for node in nodes for name in node.inputs if name}
    entering = [
        name for name in dict.fromkeys(n for node in nodes for n in node.inputs if n) if name not in {*made, *constants}
    ]
    leaving = [name for node in nodes for name in node.outputs if name and name not in read]
    first_node, first_leaving = len(entering), len(entering) + len(nodes)
    maker = {name: number for number, name in enumerate(entering)}
    maker |= {name: first_node + i for i, node in enumerate(nodes) for name in node.outputs if name}
    edges = [(maker[name], first_node + i) for i, node in enumerate(nodes) for name in node.inputs if name in maker]
    edges += [(maker[name], first_leaving + i) for i, name in enumerate(leaving)]
    stored = [sum(name in constants for name in node.inputs) for node in nodes]
    notes = [counted(count, "constant") if count else "" for count in stored]
    titled = [("node", shortened(node.operator, _LONGEST_OPERATOR), note) for node, note in zip(nodes, notes, strict=True)]
    kinds = [("tensor", "", "")] * len(entering) + titled + [("tensor", "", "")] * len(leaving)
    return _Graph(tuple(kinds), (*entering, *(node.name for node in nodes), *leaving), tuple(dict.fromkeys(edges)))


class _View:
    """The size and place of a box, as grandalf asks for them."""

    def __init__(self, width: float, height: float) -> None:
        self.w, self.h = width, height
        self.xy = (0.0, 0.0)


class _Line:
    """The points of an edge, as grandalf sets them."""

    def __init__(self) -> None:
        self._pts: list[tuple[float, float]] = []

    def setpath(self, points: Sequence[tuple[float, float]]) -> None:
        self._pts = [(float(x), float(y)) for x, y in points]


def _laid_out(graph: _Graph, key: str) -> Outline:
    from grandalf.graphs import Edge, Graph, Vertex
    from grandalf.layouts import SugiyamaLayout
    from grandalf.routing import route_with_lines

    vertices = [Vertex(number) for number in range(len(graph.kinds))]
    for vertex, (kind, _, note) in zip(vertices, graph.kinds, strict=True):
        vertex.view = _View(_WIDTH, _HEIGHT + (_NOTE_HEIGHT if note else 0) if kind == "node" else _PILL_HEIGHT)
    edges = [Edge(vertices[start], vertices[end]) for start, end in graph.edges]
    for edge in edges:
        edge.view = _Line()
    left = 0.0
    lines: list[tuple[tuple[float, float], ...]] = []
    for part in Graph(vertices, edges).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.route_edge = _GAP_X, _GAP_Y, route_with_lines
        layout.init_all()
        layout.draw(3)
        shift = left - min(v.view.xy[0] - v.view.w / 2 for v in part.sV)
        top = min(v.view.xy[1] - v.view.h / 2 for v in part.sV)
        for vertex in part.sV:
            vertex.view.xy = (vertex.view.xy[0] + shift, vertex.view.xy[1] - top)
        lines += [tuple((x + shift, y - top) for x, y in edge.view._pts) for edge in part.sE]
        left = max(v.view.xy[0] + v.view.w / 2 for v in part.sV) + _GAP_X
    return _outline(key, graph, [vertex.view for vertex in vertices], lines)


def _outline(key: str, graph: _Graph, views: Sequence[_View], lines: Sequence[tuple[tuple[float, float], ...]]) -> Outline:
    points = [point for line in lines for point in line]
    left = min([view.xy[0] - view.w / 2 for view in views] + [x for x, _ in points]) - _MARGIN
    width = max([view.xy[0] + view.w / 2 for view in views] + [x for x, _ in points]) + _MARGIN - left
    height = max(view.xy[1] + view.h / 2 for view in views) + 2 * _MARGIN
    boxes = tuple(
        Box(kind, label, note, round(view.xy[0] - view.w / 2 - left), round(view.xy[1] - view.h / 2 + _MARGIN), view.w, view.h)
        for (kind, label, note), view in zip(graph.kinds, views, strict=True)
    )
    shifted = tuple(tuple((round(x - left), round(y + _MARGIN)) for x, y in line) for line in lines)
    return Outline(key, round(width), round(height), boxes, shifted)


def _label(box: Box, name: str) -> Label:
    return Label(shortened(name), box.x + box.width / 2, box.y + (35 if box.kind == "node" else 17))


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """``name`` with its middle left out where it is long: beginnings of names are alike, and endings tell them apart."""
    if len(name) <= longest:
        return name
    head = longest // 3
    return f"{name[:head]}…{name[len(name) - (longest - head - 1) :]}"
