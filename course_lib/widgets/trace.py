"""Interactive views of a trace. The figure and the table are those of :mod:`course_lib.plotting.trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError
from course_lib.plotting.trace import ACTIVATIONS, network_trace, work_figure

if TYPE_CHECKING:
    from ipywidgets import VBox

__all__ = ["work_explorer"]

MAX_BATCH = 1024
MAX_WIDTH = 512
"""Every move really runs the network on the CPU; these bounds keep a move well under a second."""
FORMATS = ("fp32", "fp64", "fp16")


def work_explorer(*, batch: int, widths: tuple[int, ...]) -> VBox:
    """Sliders for batch, hidden width, activation and format; FLOPs, bytes and saved bytes of each operation below.

    Every move runs the network again and counts it. The picture is ``work_figure(network_trace(...))``, so a reader
    without a running kernel loses nothing but the sliders.

    Args:
        batch: samples to begin with, at most 1,024.
        widths: sizes to begin with; the slider sets all the hidden ones (all but first and last), at most 512.

    Raises:
        InvalidInputError: no hidden width to move, or a size outside the sliders' range.
    """
    if len(widths) < 3 or not 1 <= batch <= MAX_BATCH or not all(1 <= width <= MAX_WIDTH for width in widths):
        raise InvalidInputError(
            "the explorer moves the batch and the hidden widths", given=f"batch={batch}, widths={widths}",
            allowed=f"3 or more widths of 1 to {MAX_WIDTH}, batch 1 to {MAX_BATCH}",
        )  # fmt: skip
    import ipywidgets as widgets

    style = {"description_width": "9em"}
    options: dict[str, Any] = {"continuous_update": False, "style": style, "layout": {"width": "36em"}}
    controls = {
        "batch": widgets.IntSlider(value=batch, min=1, max=MAX_BATCH, description="batch [samples]", **options),
        "width": widgets.IntSlider(value=widths[1], min=1, max=MAX_WIDTH, description="hidden width", **options),
        "activation": widgets.Dropdown(options=ACTIVATIONS, value="relu", description="activation", style=style),
        "dtype": widgets.Dropdown(options=FORMATS, value="fp32", description="format", style=style),
    }
    picture = widgets.HTML()

    def draw(_: object = None) -> None:
        sizes = (widths[0], *([controls["width"].value] * (len(widths) - 2)), widths[-1])
        trace = network_trace(
            controls["batch"].value, sizes, activation=controls["activation"].value, dtype=controls["dtype"].value
        )
        totals = (
            f"<p>{trace.flops:,} FLOPs ({trace.matmul_flops:,} in products), {trace.bytes_moved:,} bytes moved, "
            f"{trace.saved_bytes:,} bytes saved for backward, {trace.parameter_bytes:,} bytes of parameters, "
            f"{trace.flops / trace.bytes_moved:.2f} FLOPs a byte.</p>"
        )
        picture.value = totals + work_figure(trace).to_html()

    for control in controls.values():
        control.observe(draw, names="value")
    draw()
    return widgets.VBox([*controls.values(), picture])
