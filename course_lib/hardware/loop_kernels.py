"""The loop nests of ``loops``, compiled. Import only where numba is installed."""

from __future__ import annotations

from course_lib.hardware import loops
from course_lib.hardware.jit import compiled

__all__ = ["matmul_nest"]

matmul_nest = compiled(loops._matmul_nest)
