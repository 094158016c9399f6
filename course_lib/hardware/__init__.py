"""hardware: work meets a machine."""

from __future__ import annotations

from course_lib.hardware.scratchpad import CapacityError, Ledger

__all__ = ["CapacityError", "Ledger"]
