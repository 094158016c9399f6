"""serving: many requests share the machine. Shapes, step time, paged KV, schedulers, simulator."""

from __future__ import annotations

from course_lib.serving import policies
from course_lib.serving.kv_cache import OutOfBlocksError, PagedKVCache
from course_lib.serving.model_shape import (
    Experts,
    LatentAttention,
    ModelShape,
    ParameterGroups,
    ShapeRow,
    TensorParallel,
    check_tensor_parallel,
    model_shape,
    model_shapes,
    parameter_groups,
    shape_table,
    tensor_parallel_degrees,
)
from course_lib.serving.policies import (
    IterationLevelBatching,
    IterationLevelScheduler,
    StaticBatching,
    StaticScheduler,
    chunked_prefill,
    continuous_batching,
    static_batching,
)
from course_lib.serving.queueing import (
    erlang_c,
    harmonic_number,
    kv_limited_requests_per_second,
    md1_ttft_seconds,
    mg1_wait_seconds,
    mm1_sojourn_quantile_seconds,
    mmc_wait_seconds,
    static_slot_utilization,
)
from course_lib.serving.report import RequestRecord, ServingReport
from course_lib.serving.roofline_step_time import RooflineStepTime
from course_lib.serving.run_log import InvariantError
from course_lib.serving.scheduling import (
    Policy,
    Request,
    ScheduledChunk,
    ScheduledStep,
    Scheduler,
    SequenceState,
)
from course_lib.serving.simulator import simulate
from course_lib.serving.slo import SLO
from course_lib.serving.step_time import AffineStepTime, ContextAffineStepTime, StepBatch, StepTime
from course_lib.serving.token_lengths import Constant, Empirical, Geometric, LogNormal, TokenLengths
from course_lib.serving.workload import RequestTrace, Workload

__all__ = [
    "SLO",
    "AffineStepTime",
    "Constant",
    "ContextAffineStepTime",
    "Empirical",
    "Experts",
    "Geometric",
    "InvariantError",
    "IterationLevelBatching",
    "IterationLevelScheduler",
    "LatentAttention",
    "LogNormal",
    "ModelShape",
    "OutOfBlocksError",
    "PagedKVCache",
    "ParameterGroups",
    "Policy",
    "Request",
    "RequestRecord",
    "RequestTrace",
    "RooflineStepTime",
    "ScheduledChunk",
    "ScheduledStep",
    "Scheduler",
    "SequenceState",
    "ServingReport",
    "ShapeRow",
    "StaticBatching",
    "StaticScheduler",
    "StepBatch",
    "StepTime",
    "TensorParallel",
    "TokenLengths",
    "Workload",
    "check_tensor_parallel",
    "chunked_prefill",
    "continuous_batching",
    "erlang_c",
    "harmonic_number",
    "kv_limited_requests_per_second",
    "md1_ttft_seconds",
    "mg1_wait_seconds",
    "mm1_sojourn_quantile_seconds",
    "mmc_wait_seconds",
    "model_shape",
    "model_shapes",
    "parameter_groups",
    "policies",
    "shape_table",
    "simulate",
    "static_batching",
    "static_slot_utilization",
    "tensor_parallel_degrees",
]
