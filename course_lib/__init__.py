"""Trace a Tensor: values become tensors, tensors become work, work meets a machine, machines cost money.

The rooms, in the order a tensor walks through them::

    tensor -> trace -> hardware -> optimization -> serving -> cost -> journey

Import what you need from a room, for example ``from course_lib.journey import Journey``.
This package imports nothing heavy; torch, numba and matplotlib load when first used.
"""

__version__ = "0.1.0"
