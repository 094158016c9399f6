"""What a capstone model is asked about: an engine, a machine, its traffic. Frozen, plain, and readable as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.cost import price
from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.hardware import device
from course_lib.serving import ModelShape, RequestTrace, model_shape
from course_lib.tensor.dtypes import dtype_bytes

BLOCK_TOKENS = 16
HOURS_PER_MONTH = 730
MEMORY_FRACTION, RESERVE_BYTES = 0.9, 3e9
"""Share of memory that the engine takes, and what it keeps for activations: the course's conventions."""

MACHINES = ("h100-sxm", "a100-80gb-sxm", "l40s")
MAX_BATCH_LIMIT, MAX_TOKENS, MAX_REQUESTS = 512, 8192, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the engine is told. Continuous batching of whole prompts; every product is computed in bf16.

    Args:
        model: a name of ``course_lib.serving.model_shapes()``.
        weight_dtype: storage of weights, such as "bf16", "fp8", "int4-g128".
        kv_dtype: storage of keys and values, "bf16" or "fp8".
        max_batch: most sequences that run at once.
    """

    model: str
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    max_batch: int = 64

    def __post_init__(self) -> None:
        model_shape(self.model)
        dtype_bytes(self.weight_dtype)
        dtype_bytes(self.kv_dtype)
        _whole("max_batch", self.max_batch, MAX_BATCH_LIMIT)

    @property
    def shape(self) -> ModelShape:
        """The sizes of the model."""
        return model_shape(self.model)

    @property
    def step_weight_bytes(self) -> float:
        """Bytes of weights that each step reads: P_mm in their storage format."""
        return self.shape.decode_weight_bytes(1, self.weight_dtype)

    @property
    def kv_token_bytes(self) -> int:
        """Bytes of keys and values that one token keeps."""
        return self.shape.kv_bytes_per_token(self.kv_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One accelerator by its data sheet and price. What it really reaches stands nowhere; fit it.

    Args:
        name: of the machine; the recordings use the same.
        peak_flops_per_second: dense bf16.
        memory_bytes: capacity.
        memory_bytes_per_second: bandwidth of the data sheet.
        usd_per_hour: to rent one.
    """

    name: str
    peak_flops_per_second: float
    memory_bytes: int
    memory_bytes_per_second: float
    usd_per_hour: float

    def kv_blocks(self, config: EngineConfig) -> int:
        """Blocks of 16 tokens in the KV pool: ``floor((0.9 memory - weights - 3 GB) / (16 KV bytes))``.

        Raises:
            DoesNotFitError: not even one block is left.
        """
        weights = config.shape.weight_bytes(config.weight_dtype)
        free = MEMORY_FRACTION * self.memory_bytes - weights - RESERVE_BYTES
        blocks = math.floor(free / (BLOCK_TOKENS * config.kv_token_bytes))
        if blocks < 1:
            raise DoesNotFitError(f"{config.model} in {config.weight_dtype} leaves {self.name} no room for a KV cache.")
        return blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one replica serves, and how much the whole service must deliver.

    Args:
        arrival_requests_per_second: Poisson arrivals at one replica; None: all requests wait at the start.
        prompt_tokens, output_tokens: mean lengths.
        length_sigma: standard deviation of the logarithm of both lengths; 0 makes them constant.
        num_requests: of one recorded run.
        demand_tokens_per_second: output tokens that all replicas together must deliver.
    """

    arrival_requests_per_second: float | None
    prompt_tokens: int
    output_tokens: int
    length_sigma: float = 0.5
    num_requests: int = 160
    demand_tokens_per_second: float = 20_000.0

    def __post_init__(self) -> None:
        _whole("prompt_tokens", self.prompt_tokens, MAX_TOKENS)
        _whole("output_tokens", self.output_tokens, MAX_TOKENS)
        _whole("num_requests", self.num_requests, MAX_REQUESTS)
        rate = self.arrival_requests_per_second
        if rate is not None and not 0 < rate < math.inf:
            raise InvalidInputError("requests arrive at a rate above zero, or None", given=rate)
        if not 0 <= self.length_sigma <= 1 or not 0 < self.demand_tokens_per_second < math.inf:
            raise InvalidInputError("length_sigma lies in 0..1 and demand is above zero", given=self)

    def requests(self, seed: int) -> RequestTrace:
        """One draw of the requests; the recordings used five seeds of their own.

        Two draws hold the same lengths in another order: the ``num_requests`` mid-quantiles of each law. What is left
        to chance is who meets whom and when, so that the noise is the scheduler's.
        """
        rng, rate, num = np.random.default_rng(seed), self.arrival_requests_per_second, self.num_requests
        arrival = np.zeros(num) if rate is None else np.cumsum(rng.exponential(1.0 / rate, size=num))
        prompt, output = (
            rng.permutation(quantile_lengths(tokens, self.length_sigma, num))
            for tokens in (self.prompt_tokens, self.output_tokens)
        )
        return RequestTrace(arrival, prompt, output, np.zeros(num, dtype=np.int64))


@cache
def quantile_lengths(mean_tokens: int, sigma: float, num: int) -> NDArray[np.int64]:
    """``exp(mu + sigma z)`` at the mid-quantiles of the normal law, ``mu = ln(mean) - sigma**2 / 2``, in whole tokens.

    >>> quantile_lengths(100, 0.5, 4).tolist()       # z = -1.15, -0.32, 0.32, 1.15; mu = 4.48
    [50, 75, 103, 157]
    """
    mu, normal = math.log(mean_tokens) - sigma**2 / 2, NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / num) for i in range(num)])
    return np.maximum(1, np.rint(np.exp(mu + sigma * z))).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration to predict: engine, machine, traffic, under a name."""

    name: str
    config: EngineConfig
    machine: Machine
    traffic: Traffic

    def with_changes(self, **changes: Any) -> Cell:
        """The same cell with fields of the engine or the traffic replaced, or another ``machine`` by name.

        Raises:
            InvalidInputError: a field that neither record has.
        """
        unknown = set(changes) - ENGINE_FIELDS - TRAFFIC_FIELDS - {"machine"}
        if unknown:
            raise InvalidInputError(
                "no such field of an engine or its traffic", given=", ".join(sorted(unknown)),
                allowed=", ".join(sorted(ENGINE_FIELDS | TRAFFIC_FIELDS | {"machine"})),
            )  # fmt: skip
        engine = {key: value for key, value in changes.items() if key in ENGINE_FIELDS}
        traffic = {key: value for key, value in changes.items() if key in TRAFFIC_FIELDS}
        machine = catalogue_machine(changes["machine"]) if "machine" in changes else self.machine
        return replace(
            self, config=replace(self.config, **engine), traffic=replace(self.traffic, **traffic), machine=machine
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cell:
        """Back from JSON."""
        return cls(
            name=data["name"], config=EngineConfig(**data["config"]), machine=Machine(**data["machine"]),
            traffic=Traffic(**data["traffic"]),
        )  # fmt: skip


ENGINE_FIELDS = frozenset(field.name for field in fields(EngineConfig))
TRAFFIC_FIELDS = frozenset(field.name for field in fields(Traffic))


def catalogue_machine(name: str) -> Machine:
    """A machine with the course's cited data-sheet numbers and default price."""
    if name not in MACHINES:
        raise InvalidInputError("the capstone has three machines", given=repr(name), allowed=", ".join(MACHINES))
    found = device(name)
    return Machine(
        name=name, peak_flops_per_second=found.peak("bf16"), memory_bytes=found.memory_bytes,
        memory_bytes_per_second=found.memory_bytes_per_second, usd_per_hour=price(name).usd_per_hour,
    )  # fmt: skip


def usd_per_month(machine: Machine, traffic: Traffic, tokens_per_second: float) -> float:
    """``730 h * USD/h * demand / tokens per second of a replica``: replicas as if they were divisible.

    >>> traffic = Traffic(arrival_requests_per_second=None, prompt_tokens=8, output_tokens=8)
    >>> round(usd_per_month(catalogue_machine("l40s"), traffic, 2000.0), 2)       # 730 * 1.55 * 10 replicas
    11315.0
    """
    return HOURS_PER_MONTH * machine.usd_per_hour * traffic.demand_tokens_per_second / tokens_per_second


def _whole(name: str, value: Any, limit: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise InvalidInputError(f"{name} is a whole number", allowed=f"1 to {limit}", given=repr(value))
