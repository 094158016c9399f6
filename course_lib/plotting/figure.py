"""Figures: one palette by meaning, labels with units, and words for those who cannot see them.

Every figure is a :class:`Figure`: an SVG with alternative text and a caption, emitted as an HTML ``<figure>``
so that the words survive any export. Measured points are filled, modelled lines solid, assumptions dashed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLORS", "MARKERS", "Figure", "canvas"]

COLORS = {
    "compute": "#0072B2",
    "memory": "#D55E00",
    "hit": "#009E73",
    "miss": "#CC79A7",
    "prefill": "#E69F00",
    "decode": "#56B4E9",
    "cost": "#000000",
    "assumed": "#999999",
}
"""Okabe-Ito colours by meaning, the same in all four weeks."""

MARKERS = {
    "compute": "o", "memory": "s", "hit": "^", "miss": "v", "prefill": "D", "decode": "P", "cost": "X", "assumed": "x",
}  # fmt: skip
"""Each meaning has a marker too, so that no figure depends on colour alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawn figure with its words.

    Args:
        svg: the drawing.
        alt: what a reader who cannot see the drawing needs to know; a full sentence.
        caption: one line under the figure.
        table: the drawn numbers as rows, header first; the static twin of the picture.
    """

    svg: str
    alt: str
    caption: str
    table: tuple[tuple[str, ...], ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.alt.strip() or not self.caption.strip():
            raise InvalidInputError("a figure needs alt text and a caption", given=f"{self.alt!r}, {self.caption!r}")

    def to_html(self) -> str:
        """A self-contained ``<figure>`` element: image with alt text, caption, and the numbers in a folded table.

        Its class keeps notebooks from reading two dollar amounts as the ends of a formula.
        """
        data = base64.b64encode(self.svg.encode()).decode()
        rows = ""
        if self.table:
            head, *body = self.table
            rows = "<details><summary>The numbers of this figure</summary><table><thead><tr>"
            rows += "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head) + "</tr></thead><tbody>"
            rows += "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in body)
            rows += "</tbody></table></details>"
        return (
            f'<figure class="mathjax_ignore" style="margin:0.5em 0;max-width:54em">'
            f'<img style="max-width:100%;background:white" alt="{escape(self.alt, quote=True)}" '
            f'src="data:image/svg+xml;base64,{data}">'
            f'<figcaption style="font-size:0.92em">{escape(self.caption)}</figcaption>{rows}</figure>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return f"Figure({self.caption!r})"


@contextmanager
def canvas(
    *, alt: str, caption: str, xlabel: str, ylabel: str, width: float = 7.2, height: float = 4.0,
    table: tuple[tuple[str, ...], ...] = (),
) -> Iterator[tuple[Axes, Callable[[], Figure]]]:  # fmt: skip
    """Axes to draw on, and a function that gives the finished :class:`Figure`.

    Labels are *name [unit]*; the drawing is deterministic (fixed ids, no date). No global state of
    matplotlib is touched, so a notebook's own plots stay as they were.

    Args:
        alt: alternative text.
        caption: one line under the figure.
        xlabel: horizontal axis, with its unit in square brackets.
        ylabel: vertical axis, likewise.
        width: inches.
        height: inches.
        table: the drawn numbers, header row first.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Drawing

    settings: Any = {  # matplotlib types each key by name; these are its own names
        "svg.hashsalt": "trace-a-tensor", "svg.fonttype": "path", "font.size": 11, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True,
        "legend.frameon": False,
    }  # fmt: skip
    with rc_context(settings):
        drawing = Drawing(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(drawing)
        axes = drawing.add_subplot()
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)

        def finish() -> Figure:
            buffer = io.StringIO()
            drawing.savefig(buffer, format="svg", metadata={"Date": None})
            return Figure(svg=buffer.getvalue(), alt=alt, caption=caption, table=table)

        yield axes, finish
