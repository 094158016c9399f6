"""Figures: one palette by meaning, labels with units, and words for those who cannot see them."""

from course_lib.plotting.figure import COLORS, MARKERS, Figure, canvas

__all__ = ["COLORS", "MARKERS", "Figure", "canvas"]
