"""hardware: work meets a machine. Devices, rooflines, caches, scratchpads and wires."""

from __future__ import annotations

from course_lib.hardware.device import Device, MemoryLevel, device, device_template, devices
from course_lib.hardware.scratchpad import CapacityError, Ledger

__all__ = ["CapacityError", "Device", "Ledger", "MemoryLevel", "device", "device_template", "devices"]
