"""Interactive view of load and batching, drawn by the functions of :mod:`course_lib.plotting.batching`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib.plotting.batching import Engine, LoadCurve, goodput_figure, ttft_figure
from course_lib.serving import Policy, chunked_prefill, continuous_batching, static_batching

if TYPE_CHECKING:
    from ipywidgets import VBox

__all__ = ["load_dial"]


def load_dial(engine: Engine, curves: Sequence[LoadCurve], *, slots: int, rate: float, chunk: int) -> VBox:
    """Load, policy and chunk: each move simulates the run and marks it on the curves.

    Without a running kernel use :func:`course_lib.plotting.batching.ttft_figure` and
    :func:`~course_lib.plotting.batching.goodput_figure`: the same pictures, standing still.

    Args:
        engine: the replica.
        curves: what the marked run is compared with.
        slots: sequences that can run at once.
        rate: where the load slider starts [requests/s].
        chunk: where the chunk slider starts [tokens a step].
    """
    import ipywidgets as widgets

    wide: Any = {"description_width": "9em"}
    layout = widgets.Layout(width="34em")
    highest = max(curves[0].rates)
    load = widgets.FloatSlider(value=rate, min=0.5, max=highest, step=0.5, description="load [requests/s]", style=wide,
                               layout=layout, continuous_update=False)  # fmt: skip
    who = widgets.Dropdown(options=["static", "continuous", "chunked"], value="chunked", description="policy",
                           style=wide, layout=layout)  # fmt: skip
    budgets = sorted({slots * 2**i for i in range(7)} | {chunk})
    tokens = widgets.SelectionSlider(options=budgets, value=chunk, description="chunk [tokens]", style=wide,
                                     layout=layout, continuous_update=False)  # fmt: skip
    view = widgets.ToggleButtons(options=["waiting", "goodput"], description="show", style=wide)
    picture = widgets.HTML()

    def policy() -> Policy:
        if who.value == "chunked":
            return chunked_prefill(tokens.value, slots)
        return static_batching(slots) if who.value == "static" else continuous_batching(slots)

    def draw(_: object = None) -> None:
        tokens.disabled = who.value != "chunked"
        chosen = policy()
        marked = (chosen, load.value, engine.run(chosen, load.value))
        figure = ttft_figure if view.value == "waiting" else goodput_figure
        picture.value = figure(curves, marked=marked).to_html()

    for control in (load, who, tokens, view):
        control.observe(draw, names="value")
    draw()
    return widgets.VBox([load, who, tokens, view, picture])
