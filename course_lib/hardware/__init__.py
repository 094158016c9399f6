"""hardware: work meets a machine. Devices, rooflines, caches, scratchpads and wires."""

from __future__ import annotations

from course_lib.hardware.cache import (
    CacheLevel,
    HierarchyStats,
    LevelStats,
    simulate_cache,
    simulate_cache_python,
    simulate_cache_reference,
)
from course_lib.hardware.calibrate import MachineCard, Measurement, TriadPoint, calibrate
from course_lib.hardware.collectives import (
    RingRun,
    all_gather_seconds,
    bus_factor,
    reduce_scatter_seconds,
    ring_all_reduce,
    ring_all_reduce_seconds,
    ring_tree_crossover_bytes,
    top_k_break_even_devices,
    tree_all_reduce_seconds,
)
from course_lib.hardware.device import COMPUTE_FORMATS, Device, MemoryLevel, device, device_template, devices
from course_lib.hardware.loops import (
    LOOP_ORDERS,
    AddressStream,
    cyclic_scan_stream,
    matmul_misses_closed_form,
    matmul_misses_validity,
    matmul_stream,
    transpose_stream,
)
from course_lib.hardware.miss_curve import (
    MissClasses,
    MissCurve,
    miss_classes,
    miss_curve,
    stack_distances,
    stack_distances_numpy,
)
from course_lib.hardware.roofline import Roofline, roofline
from course_lib.hardware.scratchpad import CapacityError, Ledger

__all__ = [
    "COMPUTE_FORMATS", "LOOP_ORDERS", "AddressStream", "CacheLevel", "CapacityError", "Device",
    "HierarchyStats", "Ledger", "LevelStats", "MachineCard", "Measurement", "MemoryLevel", "MissClasses",
    "MissCurve", "RingRun", "Roofline", "TriadPoint", "all_gather_seconds", "bus_factor", "calibrate",
    "cyclic_scan_stream", "device", "device_template", "devices", "matmul_misses_closed_form",
    "matmul_misses_validity", "matmul_stream", "miss_classes", "miss_curve", "reduce_scatter_seconds",
    "ring_all_reduce", "ring_all_reduce_seconds", "ring_tree_crossover_bytes", "roofline", "simulate_cache",
    "simulate_cache_python", "simulate_cache_reference", "stack_distances", "stack_distances_numpy",
    "top_k_break_even_devices", "transpose_stream", "tree_all_reduce_seconds",
]  # fmt: skip
