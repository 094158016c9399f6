"""hardware: work meets a machine. Devices, rooflines, caches, scratchpads and wires."""

from __future__ import annotations

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
from course_lib.hardware.roofline import Roofline, roofline
from course_lib.hardware.scratchpad import CapacityError, Ledger

__all__ = [
    "COMPUTE_FORMATS", "CapacityError", "Device", "Ledger", "MemoryLevel", "RingRun", "Roofline", "all_gather_seconds",
    "bus_factor", "device", "device_template", "devices", "reduce_scatter_seconds", "ring_all_reduce",
    "ring_all_reduce_seconds", "ring_tree_crossover_bytes", "roofline", "top_k_break_even_devices",
    "tree_all_reduce_seconds",
]  # fmt: skip
