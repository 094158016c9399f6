"""Interactive views of caches, drawn by the functions of :mod:`course_lib.plotting.caches`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.plotting.caches import TileCurves, tile_dial_figure

if TYPE_CHECKING:
    from ipywidgets import VBox

__all__ = ["tile_dial"]


def tile_dial(tiled: TileCurves, *, tile: int, num_lines: int) -> VBox:
    """Two sliders, tile and capacity, that move the point on the miss curve.

    Without a running kernel use :func:`course_lib.plotting.caches.tile_dial_figure`: the same picture, standing still.

    Args:
        tiled: curves of all tiles.
        tile: where the first slider starts.
        num_lines: where the second starts, 4 to 4,096 lines.
    """
    import ipywidgets as widgets

    wide: Any = {"description_width": "9em"}
    layout = widgets.Layout(width="34em")
    tiles = widgets.SelectionSlider(
        options=list(tiled.curves), value=tile, description="tile [numbers]", style=wide, layout=layout
    )
    lines = widgets.IntSlider(
        value=num_lines, min=4, max=4096, description="cache [lines]", style=wide, layout=layout,
        continuous_update=False,
    )  # fmt: skip
    picture = widgets.HTML()

    def draw(_: object = None) -> None:
        picture.value = tile_dial_figure(tiled, tile=tiles.value, num_lines=lines.value).to_html()

    tiles.observe(draw, names="value")
    lines.observe(draw, names="value")
    draw()
    return widgets.VBox([tiles, lines, picture])
