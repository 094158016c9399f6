"""The journey: one record from a model's shape to the dollars of a month, every link open to look at and to change."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from course_lib.cost import Bill, Tariff
from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.hardware import Device
from course_lib.journey.compare import Diff, compare
from course_lib.journey.explain import Explanation
from course_lib.journey.inputs import chain_inputs
from course_lib.journey.invoice import invoice
from course_lib.journey.links import Chain, Link, LinkRule
from course_lib.journey.resolve import (
    check_context,
    resolve_compute_dtype,
    resolve_device,
    resolve_model,
    resolve_parallelism,
    resolve_tariff,
)
from course_lib.journey.rules import LINKS
from course_lib.journey.sensitivity import Sensitivity, sensitivity
from course_lib.journey.served_model import ServedModel
from course_lib.journey.uncertainty import Band, band, efficiency_grid
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.slo import SLO
from course_lib.serving.workload import Workload
from course_lib.tensor.dtypes import dtype_bits

__all__ = ["Journey"]

_FLAGSHIP = Workload(arrival_requests_per_second=60, prompt_tokens=1500, output_tokens=300)
_PROMISE = SLO(tpot_seconds=0.05)
_BOUND_LINKS = {
    "memory": "memory_batch", "promise": "tpot_promise_seconds", "ttft": "ttft_promise_seconds",
    "batch limit": "batch_limit",
}  # fmt: skip
_SHARES = (("efficiency_compute", 1), ("efficiency_bandwidth", 1), ("memory_fraction", 1), ("headroom_fraction", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """Shape -> work -> step time -> batch -> replicas -> dollars.

    ``dollars = arrivals / (headroom * B / (o * TPOT(B))) * devices * hours * price`` at the best batch B.

    Args:
        model: a catalogue name, a path to a ``config.json``, a parsed configuration, a ``ModelShape``, or a torch
            module (its parameters are counted and its FLOPs traced).
        device: a catalogue name, a path to a device file, or a ``Device``.
        workload: what arrives; distributions enter with their means.
        tariff: a ``Tariff``, dollars per device hour, a provider's name, or None for the default price.
        slo: the promise; with an attainment below 1 that quantile of TTFT is promised, else the 99th percentile.
        weight_dtype, kv_dtype: storage formats. ``"int4-g64"`` is 4.25 bits a weight.
        compute_dtype: format that is multiplied; None is bf16, or what the device has. Weight-only formats save
            bytes and no FLOPs; W8A8 is ``weight_dtype="fp8", compute_dtype="fp8"``.
        efficiency_compute, efficiency_bandwidth: shares of the peaks that are reached, 0..1 (assumed).
        fixed_seconds: of every step (assumed) [s].
        memory_fraction: share of memory that the engine may use, 0..1.
        reserve_bytes: activations and workspace on each device [B].
        headroom_fraction: share of its capacity at which a replica is run, 0..1.
        num_spares: replicas kept for a failure.
        hours_per_month: hours billed.
        max_batch: the engine's own limit.
        tensor_parallel: devices that share a model, or ``"auto"`` for the fewest that hold it.
        prefill_attention: count the attention FLOPs of prompts too (off in the flagship table).
        kv_block_tokens: KV memory comes in blocks of so many tokens (1: no paging waste).
        disaggregated: prefills run on replicas of their own.
        as_of: day from which the age of the price is counted; None is today.
        rules: the links; see :meth:`with_link`.

    Raises:
        InvalidInputError, UnknownNameError: a field that cannot be used, a name in no catalogue.
        DoesNotFitError: the weights or one sequence do not fit, or the promise cannot be kept.
        UnsupportedError: a format that the device does not multiply.

    Assumes: steady state, mean lengths, no overlap of KV reading or communication, balanced experts, no host limits.

    >>> journey = Journey(model="llama-3-8b", device="h100-sxm")
    >>> round(journey.bill.continuous_usd_per_month), round(journey.bill.billed_usd_per_month)
    (13073, 17228)
    """

    model: Any = "llama-3-8b"
    device: Any = "h100-sxm"
    workload: Workload = _FLAGSHIP
    tariff: Tariff | float | str | None = None
    slo: SLO = _PROMISE
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    compute_dtype: str | None = None
    efficiency_compute: float = 0.6
    efficiency_bandwidth: float = 0.8
    fixed_seconds: float = 5e-4
    memory_fraction: float = 0.9
    reserve_bytes: float = 3e9
    headroom_fraction: float = 0.7
    num_spares: int = 1
    hours_per_month: float = 730
    max_batch: int = 512
    tensor_parallel: int | str = 1
    prefill_attention: bool = False
    kv_block_tokens: int = 1
    disaggregated: bool = False
    as_of: datetime.date | None = None
    rules: tuple[LinkRule, ...] = field(default=LINKS, repr=False)
    inputs: dict[str, Any] = field(init=False, repr=False, compare=False)
    chain: Chain = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        model, device = resolve_model(self.model), resolve_device(self.device)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "device", device)
        check_context(model, self.workload)
        compute_dtype = resolve_compute_dtype(device, self.compute_dtype)
        inputs = chain_inputs(
            self, model, device, resolve_tariff(self.tariff, device), compute_dtype=compute_dtype, tensor_parallel=1
        )
        inputs["tensor_parallel"] = resolve_parallelism(inputs, self.tensor_parallel)
        chain = Chain(self.rules, inputs)
        for name in ("billed_usd_per_month", "continuous_usd_per_month"):
            chain[name]  # what cannot be served is said now
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "chain", chain)

    def _check(self) -> None:
        for name, most in _SHARES:
            if not 0 < getattr(self, name) <= most:
                raise InvalidInputError(f"{name} is a share", given=getattr(self, name), allowed="above 0, up to 1")
        for name, least in (("fixed_seconds", 0), ("reserve_bytes", 0), ("hours_per_month", 1e-9)):
            if not least <= getattr(self, name) < float("inf"):
                asked = f"{name} is {'above zero' if least else '0 or more'}"
                raise InvalidInputError(asked, given=getattr(self, name))
        for name, least in (("max_batch", 1), ("kv_block_tokens", 1), ("num_spares", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInputError(f"{name} is a whole number, {least} or more", given=repr(value))
        for name in ("weight_dtype", "kv_dtype"):
            dtype_bits(getattr(self, name))
        if not isinstance(self.workload, Workload) or not isinstance(self.slo, SLO):
            raise InvalidInputError(
                "workload is a Workload and slo an SLO", given=f"{self.workload!r}, {self.slo!r}",
                next_step="Workload(arrival_requests_per_second=60, prompt_tokens=1500, output_tokens=300).",
            )  # fmt: skip

    @property
    def shape(self) -> ServedModel:
        """The model: a shape, or the counts of a traced module."""
        return self.model  # type: ignore[no-any-return]

    @property
    def machine(self) -> Device:
        """The device record."""
        return self.device  # type: ignore[no-any-return]

    @property
    def degree(self) -> int:
        """Devices that share one copy of the model."""
        return int(self.inputs["tensor_parallel"])

    def __getitem__(self, name: str) -> Any:
        """The value of one link by name.

        >>> Journey()["batch"]
        211.0
        """
        return self.chain[name]

    @property
    def binding(self) -> tuple[str, ...]:
        """Links that keep the bill from falling: what stops the batch, what a step waits for, the minimum fleet."""
        chain = self.chain
        computes = chain["compute_seconds"] >= chain["weight_read_seconds"]
        names = [_BOUND_LINKS[chain["best"].bound], "compute_seconds" if computes else "weight_read_seconds"]
        if chain["num_replicas"] < 1:
            names.append("num_replicas_billed")
        return tuple(names)

    @property
    def time_shares(self) -> tuple[tuple[str, float], ...]:
        """Where the time between two tokens goes, as shares that sum to 1."""
        chain = self.chain
        matmul = max(chain["compute_seconds"], chain["weight_read_seconds"])
        parts = {
            "matmuls of decode": matmul, "KV reads": chain["kv_read_seconds"], "fixed": chain["step_fixed_seconds"],
            "all-reduces": chain["all_reduce_seconds"], "prefill": chain["interval_seconds"] - chain["step_seconds"],
        }  # fmt: skip
        return tuple((name, seconds / chain["interval_seconds"]) for name, seconds in parts.items())

    @property
    def links(self) -> tuple[Link, ...]:
        """Every link from the shape to the dollars, in order. Text, page and bill are made from these."""
        cited = self.machine.citations
        price = self.inputs["tariff"].citation
        sources = {
            name: cited[name].source for name in ("memory_bytes", "memory_bytes_per_second") if name in cited
        }
        peak = cited.get(f"peak_flops_per_second.{self.inputs['compute_dtype']}")
        sources["peak_flops_per_second"] = peak.source if peak else ""
        sources["usd_per_hour"] = f"{price.source} ({price.date})" if price else "given by the caller"
        return self.chain.links(self.binding, sources)

    @property
    def bill(self) -> Bill:
        """The invoice of a month."""
        return invoice(self.chain, self.as_of or datetime.date.today())

    def bands(self, *names: str) -> tuple[Band, ...]:
        """Links over compute efficiency 0.4 to 0.7 and bandwidth efficiency 0.6 to 0.9.

        >>> [round(each.high) for each in Journey().bands("batch", "num_replicas_billed")]
        [224, 11]
        """
        return tuple(band(self[name], grid) for name, grid in zip(names, efficiency_grid(self.chain, *names)))

    @property
    def band(self) -> Band:
        """Continuous dollars over the range of efficiencies."""
        return self.bands("continuous_usd_per_month")[0]

    @property
    def billed_band(self) -> Band:
        """Billed dollars over the same range."""
        return self.bands("billed_usd_per_month")[0]

    def explain(self) -> Explanation:
        """Every link with value, unit, formula, basis and whether it binds; as text, as rows, as a page."""
        continuous, billed = self.bands("continuous_usd_per_month", "billed_usd_per_month")
        return Explanation(
            title=f"{self.shape.name} on {self.machine.title}", links=self.links, bill=self.bill, band=continuous,
            billed_band=billed, time_shares=self.time_shares,
        )  # fmt: skip

    def diff(self, before: Journey) -> Diff:
        """What changed from ``before`` to this journey, and why.

        >>> Journey().with_shape(num_kv_heads=32).diff(Journey()).attribution.largest
        'KV bytes'
        """
        return compare(self, before)

    def sensitivity(self) -> Sensitivity:
        """Elasticities of the continuous dollars to each size and each assumption.

        >>> round(Journey().sensitivity()["model_size"], 2)
        0.74
        """
        return sensitivity(self.inputs)

    def with_shape(self, **changes: object) -> Journey:
        """The journey of an edited model; see :meth:`ModelShape.with_changes`.

        Raises:
            InvalidInputError: the model is a traced module, whose shape cannot be edited.
        """
        if not isinstance(self.model, ModelShape):
            raise InvalidInputError(
                f"{self.shape.name} is known by its counts, so no size can be edited",
                given=", ".join(changes), next_step="Edit the module and trace it again, or pass a ModelShape.",
            )  # fmt: skip
        return replace(self, model=self.model.with_changes(**changes))

    def with_changes(self, **changes: Any) -> Journey:
        """The journey with some fields changed; those of the workload and of the promise are reached by name too.

        >>> round(Journey().with_changes(output_tokens=1500).diff(Journey()).relative, 3)
        2.831
        """
        own = {each.name for each in fields(self) if each.init}
        nested = {"workload": {each.name for each in fields(Workload)}, "slo": {each.name for each in fields(SLO)}}
        for name in changes:
            if name not in own | nested["workload"] | nested["slo"]:
                raise UnknownNameError("field of a journey", name, own | nested["workload"] | nested["slo"])
        chosen = {name: value for name, value in changes.items() if name in own}
        for record, names in nested.items():
            inner = {name: value for name, value in changes.items() if name in names and name not in own}
            if inner:
                chosen[record] = replace(chosen.get(record, getattr(self, record)), **inner)
        return replace(self, **chosen)

    def with_link(self, name: str, function: Callable[..., Any]) -> Journey:
        """The journey with one link made by another function; its argument names say which links it needs.

        >>> Journey().with_link("headroom", lambda: 1.0)["num_replicas_billed"]
        6
        """
        if name not in {rule.name for rule in self.rules}:
            raise UnknownNameError("link", name, {rule.name for rule in self.rules})
        rules = tuple(rule.with_function(function) if rule.name == name else rule for rule in self.rules)
        return replace(self, rules=rules)

    def to_dict(self) -> dict[str, Any]:
        """The inputs and the links as plain data, for JSON."""
        from course_lib.journey.serialize import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Journey:
        """The journey that :meth:`to_dict` wrote."""
        from course_lib.journey.serialize import from_dict

        return from_dict(data)

    def _repr_html_(self) -> str:
        return self.explain().html()


