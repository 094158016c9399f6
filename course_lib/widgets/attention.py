"""Sliders of lesson 3.1; everything shown is drawn by :mod:`course_lib.plotting.attention`."""

from __future__ import annotations

from typing import Any

from course_lib.optimization import AttentionShape
from course_lib.plotting.attention import traffic_figure

__all__ = ["attention_view"]

_BYTES = (("fp16", 2), ("fp32", 4))


def attention_view(
    *, num_tokens: int, head_size: int, block_q: int, block_k: int, itemsize: int, sram_bytes: int
) -> Any:
    """Sliders for tokens, head size, tile, format and on-chip memory, above the traffic figure.

    Returns:
        An ``ipywidgets.VBox``; its last child holds the figure as HTML, the same as :func:`traffic_figure` gives.

    >>> view = attention_view(num_tokens=256, head_size=64, block_q=32, block_k=32, itemsize=2, sram_bytes=50_000)
    >>> "<figure" in view.children[-1].value
    True
    """
    import ipywidgets as widgets

    wide = {"style": {"description_width": "8em"}, "layout": {"width": "30em"}, "continuous_update": False}
    tokens = widgets.SelectionSlider(
        options=sorted({num_tokens, *(2**n for n in range(8, 16))}), value=num_tokens, description="tokens", **wide
    )
    head = widgets.SelectionSlider(
        options=sorted({head_size, 32, 64, 80, 128, 256}), value=head_size, description="head size", **wide
    )
    rows = widgets.IntSlider(value=block_q, min=8, max=512, description="query rows", **wide)
    keys = widgets.SelectionSlider(
        options=sorted({block_k, 16, 32, 64, 128, 256}), value=block_k, description="keys a tile", **wide
    )
    dtype = widgets.ToggleButtons(options=_BYTES, value=itemsize, description="format")
    room = widgets.IntSlider(
        value=sram_bytes // 1000, min=16, max=512, description="on-chip memory [KB]", **wide
    )
    picture = widgets.HTML()

    def draw(_: object = None) -> None:
        shape = AttentionShape(num_queries=tokens.value, head_size=head.value)
        picture.value = traffic_figure(
            shape, block_k=keys.value, itemsize=dtype.value, sram_bytes=room.value * 1000, block_q=rows.value
        ).to_html()

    controls = (tokens, head, rows, keys, dtype, room)
    for control in controls:
        control.observe(draw, names="value")
    draw()
    return widgets.VBox([*controls, picture])
