"""The controls beside the page of a journey. ipywidgets is imported here and nowhere else."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from course_lib.cost import Tariff, prices
from course_lib.errors import TraceATensorError
from course_lib.journey import Journey
from course_lib.plotting.journey import SIZE_NAMES
from course_lib.serving import ModelShape, model_shape, model_shapes
from course_lib.widgets.journey import CHARTS, journey_view, message_html

__all__ = ["Explorer"]

_SNAPS = (1, 64, 128, 256)
_SHAPES = ("num_layers", "model_size", "feed_forward_size", "num_kv_heads", "vocab_size")
_SNAPPED = ("model_size", "feed_forward_size")
_AXES = (
    "num_kv_heads", "feed_forward_size", "num_layers", "model_size", "arrival_requests_per_second", "output_tokens",
)  # fmt: skip
_FORMATS = ("bf16", "fp8", "int8", "int4-g64", "int4-g128", "mxfp4", "nf4")
_CACHE_FORMATS = ("bf16", "fp8", "int8")
_WORDS = {"style": {"description_width": "10.5em"}, "layout": {"width": "25em"}}


class Explorer:
    """Controls and a page. It holds what the reader has set and nothing else; every number comes from the journey.

    Args:
        base: what each setting is compared with.
        start: the setting to begin with.
    """

    def __init__(self, base: Journey, start: Journey) -> None:
        self.base, self.journey, self.own = base, start, start.model
        self.predicted: float | None = None
        self._quiet = False
        self.controls = _controls(start)
        self.strip, self.invoice, self.chart = (widgets.HTML() for _ in range(3))
        self.ask = widgets.Label()
        self.guess = widgets.Text(description="your number", placeholder="such as 12", **_WORDS)
        self.commit = widgets.Button(description="Commit and show", button_style="primary")
        self.rebase = widgets.Button(description="Make this the base")
        self.box = self._layout()
        for name, control in self.controls.items():
            control.observe(lambda change, name=name: self._moved(name), names="value")
        self.commit.on_click(lambda _: self._committed())
        self.rebase.on_click(lambda _: self._rebased())
        self.refresh()

    def refresh(self) -> None:
        """Read the controls, ask the library, show the page; what cannot be served is said in place."""
        value = {name: control.value for name, control in self.controls.items()}
        try:
            self.journey = _journey(value, self.base, self._shape(value["model"]))
            page = journey_view(
                self.journey, self.base, chart=value["chart"], size=value["axis"], predicted=self.predicted,
                predict_first=True,
            )  # fmt: skip
        except TraceATensorError as error:
            self.invoice.value = message_html(str(error))
            self.strip.value = self.chart.value = ""
            self.ask.value = "No bill for this setting; the reason stands above."
            return
        self.strip.value, self.invoice.value = page.strip.to_html(), page.invoice
        self.chart.value, self.ask.value = page.chart.to_html() if page.chart else "", page.ask

    def _moved(self, name: str) -> None:
        if self._quiet:
            return
        if name in ("chart", "axis"):
            self.predicted = None  # another question
        self._quiet = True
        try:
            if name == "model":
                self._take_model(self._shape(self.controls["model"].value))
            elif name == "device":
                _offer_prices(self.controls["price"], self.controls["device"].value, self.base.inputs["tariff"])
            elif name == "snap":
                self._snap()
        finally:
            self._quiet = False
        self.refresh()

    def _shape(self, name: str) -> ModelShape:
        """A catalogue model, or the reader's own."""
        return model_shape(name) if name in model_shapes() else self.own

    def _take_model(self, shape: ModelShape) -> None:
        for name in _SHAPES:
            control, now = self.controls[name], getattr(shape, name)
            if name == "num_kv_heads":
                control.options = _divisors(shape.num_heads)
            else:
                control.max = max(control.max, 2 * now)
            control.value = now

    def _snap(self) -> None:
        """Sizes go up to the next multiple, as padding does."""
        step = self.controls["snap"].value
        for name in _SNAPPED:
            control = self.controls[name]
            control.step = step
            control.value = min(-(-control.value // step) * step, control.max // step * step)

    def _committed(self) -> None:
        try:
            self.predicted = float(self.guess.value.replace(",", ""))
        except ValueError:
            self.ask.value = "Write a number first, such as 12. A wrong one costs nothing."
            return
        self.refresh()

    def _rebased(self) -> None:
        self.base = self.journey
        self.refresh()

    def _layout(self) -> Any:
        c = self.controls
        groups = (
            ("Model", ("model", "snap", *_SHAPES, "weight_dtype", "kv_dtype")),
            ("Workload and promise", ("rate", "prompt", "output", "prefix", "tpot")),
            ("Machine and price", ("device", "price", "degree")),
        )  # fmt: skip
        left = widgets.VBox(
            [part for title, names in groups for part in (widgets.HTML(f"<b>{title}</b>"), *(c[n] for n in names))],
            layout={"min_width": "27em"},
        )
        bar = widgets.HBox([c["chart"], c["axis"]], layout={"flex_flow": "row wrap"})
        guess = widgets.HBox([self.guess, self.commit, self.rebase], layout={"flex_flow": "row wrap"})
        right = widgets.VBox([self.strip, self.invoice, bar, self.ask, guess, self.chart], layout={"flex": "1 1 40em"})
        box = widgets.HBox([left, right], layout={"flex_flow": "row wrap"})
        box.add_class("tt-explorer")
        return box


def _journey(value: dict[str, Any], base: Journey, shape: ModelShape) -> Journey:
    """The journey of the controls; what has no control is the base's."""
    edits = {name: value[name] for name in _SHAPES if value[name] != getattr(shape, name)}
    return base.with_changes(
        model=shape.with_changes(**edits) if edits else shape, device=value["device"], tariff=value["price"],
        weight_dtype=value["weight_dtype"], kv_dtype=value["kv_dtype"], tensor_parallel=value["degree"],
        arrival_requests_per_second=value["rate"], prompt_tokens=value["prompt"],
        output_tokens=value["output"], prefix_hit_fraction=value["prefix"],
        tpot_seconds=value["tpot"] / 1000 if value["tpot"] else None,
    )  # fmt: skip


def _controls(start: Journey) -> dict[str, Any]:
    shape, workload = start.model, start.workload
    size = {name: getattr(shape, name) for name in _SHAPES}
    promise = start.slo.tpot_seconds
    made: dict[str, Any] = {
        "model": widgets.Dropdown(
            options=sorted({*model_shapes(), shape.name}), value=shape.name, description="model", **_WORDS
        ),
        "snap": widgets.ToggleButtons(options=_SNAPS, value=64, description="snap sizes to", **_narrow()),
        "num_kv_heads": widgets.SelectionSlider(
            options=_divisors(shape.num_heads), value=size["num_kv_heads"], description=SIZE_NAMES["num_kv_heads"],
            **_WORDS,
        ),
        "weight_dtype": widgets.Dropdown(
            options=_with(_FORMATS, start.weight_dtype), value=start.weight_dtype, description="weight format",
            **_WORDS,
        ),
        "kv_dtype": widgets.Dropdown(
            options=_with(_CACHE_FORMATS, start.kv_dtype), value=start.kv_dtype, description="KV cache format",
            **_WORDS,
        ),
        "rate": _slider("requests per second", workload.arrival_requests_per_second, 0.5, 300, 0.5),
        "prompt": _slider("prompt tokens", round(start["prompt_tokens"]), 50, 8000, 50, kind=widgets.IntSlider),
        "output": _slider("output tokens", round(start["output_tokens"]), 10, 4000, 10, kind=widgets.IntSlider),
        "prefix": _slider("prefix hits (share)", workload.prefix_hit_fraction, 0, 0.95, 0.05),
        "tpot": _slider("ms between tokens", 1000 * (promise or 0), 0, 200, 1),
        "device": widgets.Dropdown(
            options=sorted({*_priced_devices(), start.machine.name}), value=start.machine.name, description="device",
            **_WORDS,
        ),
        "price": widgets.Dropdown(description="price", **_WORDS),
        "degree": widgets.Dropdown(
            options=_with((1, 2, 4, 8, "auto"), start.tensor_parallel), value=start.tensor_parallel,
            description="devices a replica", **_WORDS,
        ),
        "chart": widgets.ToggleButtons(options=CHARTS, value="staircase", description="chart", **_narrow()),
        "axis": widgets.Dropdown(
            options=[(SIZE_NAMES[name], name) for name in _AXES], description="asked about", **_WORDS
        ),
    }  # fmt: skip
    for name, most, step in (("num_layers", 128, 1), ("model_size", 16_384, 64), ("feed_forward_size", 65_536, 64)):
        least = 1 if step == 1 else step
        made[name] = _slider(SIZE_NAMES[name], size[name], least, max(most, size[name]), step, kind=widgets.IntSlider)
    made["vocab_size"] = widgets.BoundedIntText(
        value=size["vocab_size"], min=1, max=2_000_000, step=64, description=SIZE_NAMES["vocab_size"], **_WORDS
    )
    _offer_prices(made["price"], start.machine.name, start.inputs["tariff"])
    return made


def _slider(words: str, value: float, least: float, most: float, step: float, *, kind: Any = None) -> Any:
    kind = kind or widgets.FloatSlider
    readout = {} if kind is widgets.IntSlider else {"readout_format": ".0f" if step >= 1 else ".2f"}
    return kind(value=value, min=least, max=max(most, value), step=step, description=words, **readout, **_WORDS)


def _narrow() -> dict[str, Any]:
    return {"style": {"description_width": "10.5em", "button_width": "auto"}}


def _with(offered: tuple[Any, ...], given: Any) -> list[Any]:
    return list(dict.fromkeys((*offered, given)))


def _divisors(num_heads: int) -> list[int]:
    return [count for count in range(1, num_heads + 1) if num_heads % count == 0]


def _priced_devices() -> list[str]:
    from course_lib.hardware import devices

    return [name for name in devices() if any(tariff.device == name for tariff in prices())]


def _offer_prices(menu: Any, device: str, given: Tariff) -> None:
    """The recorded prices of a device, the default first; the price given by the caller where it is for this device."""
    own = [tariff for tariff in prices() if tariff.device == device]
    if given.device in ("", device) and given not in own:
        own.append(given)
    menu.options = [(f"${t.usd_per_hour:.2f}/h {t.pricing} {t.provider} {t.date}".strip(), t) for t in own]
    menu.index = own.index(given) if given in own else 0
