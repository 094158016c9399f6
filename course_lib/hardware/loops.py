"""Address streams of executed loop nests, and the closed forms they are compared with.

A stream is what a program touches, in order: the loops run, the arithmetic is done, and each access writes down its
byte address. The closed forms further down are derived on paper and never produce a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.hardware.jit import has_numba

__all__ = [
    "LOOP_ORDERS", "AddressStream", "cyclic_scan_stream", "matmul_misses_closed_form", "matmul_misses_validity",
    "matmul_stream", "transpose_stream",
]  # fmt: skip

LOOP_ORDERS = ("ijk", "ikj", "jik", "jki", "kij", "kji")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressStream:
    """Byte addresses in program order, which of them are writes, and what the loops computed (None for a scan)."""

    addresses: npt.NDArray[np.int64] = field(repr=False)
    is_write: npt.NDArray[np.bool_] = field(repr=False)
    result: npt.NDArray[np.float64] | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return int(self.addresses.size)


def matmul_stream(
    n: int, *, order: str = "ijk", tile: int | None = None, element_bytes: int = 4, line_bytes: int = 64
) -> AddressStream:
    """Addresses of ``C[i,j] += A[i,k] * B[k,j]`` for n x n matrices, executed in a given order of loops.

    Each inner step touches A[i,k], B[k,j] and C[i,j], in this order, the last as a write; A, B and C are row-major
    and start on a line each, one after the other. With ``tile`` b the three loops run over tiles in the order
    ``ijk`` and, inside a tile, in ``order``.

    Args:
        n: rows and columns, 1 or more.
        order: loops from the outside in, one of :data:`LOOP_ORDERS`.
        tile: tile size, a divisor of n; None for no tiles.
        element_bytes: size of one number [B].
        line_bytes: alignment of the three bases [B].

    Returns:
        3 n^3 accesses, and the product of two fixed matrices as ``result``.

    Raises:
        InvalidInputError: an unknown order, a tile that does not divide n, a size below 1.

    >>> stream = matmul_stream(2, order="ijk")
    >>> stream.addresses[:6].tolist()                    # A[0,0] B[0,0] C[0,0]   A[0,1] B[1,0] C[0,0]
    [0, 64, 128, 4, 72, 128]
    """
    if order not in LOOP_ORDERS:
        raise InvalidInputError("an order of three loops", allowed=", ".join(LOOP_ORDERS), given=repr(order))
    block = n if tile is None else tile
    if min(n, block, element_bytes, line_bytes) < 1 or n % block:
        raise InvalidInputError("sizes are 1 or more and the tile divides n", given=f"n={n}, tile={tile}")
    bases = np.array([0, 1, 2]) * -(-n * n * element_bytes // line_bytes) * line_bytes
    a, b = _operands(n)
    c = np.zeros(n * n)
    out = np.empty(3 * n**3, dtype=np.int64)
    depth_of = np.array([order.index(letter) for letter in "ijk"])
    nest = _compiled_nest() if has_numba() else _matmul_nest
    nest(n, block, depth_of, element_bytes, bases, a, b, c, out)
    return AddressStream(addresses=out, is_write=np.arange(out.size) % 3 == 2, result=c.reshape(n, n))


def _operands(n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Small whole numbers, so that the product is exact in any order."""
    index = np.arange(n * n)
    return (index * 7 % 11 - 5).astype(np.float64), (index * 5 % 13 - 6).astype(np.float64)


def _matmul_nest(
    n: int, block: int, depth_of: Any, element_bytes: int, bases: Any, a: Any, b: Any, c: Any, out: Any
) -> None:
    at = 0
    here = np.zeros(3, dtype=np.int64)
    for tile_i in range(0, n, block):
        for tile_j in range(0, n, block):
            for tile_k in range(0, n, block):
                for here[0] in range(block):
                    for here[1] in range(block):
                        for here[2] in range(block):
                            i = tile_i + here[depth_of[0]]
                            j = tile_j + here[depth_of[1]]
                            k = tile_k + here[depth_of[2]]
                            c[i * n + j] += a[i * n + k] * b[k * n + j]
                            out[at] = bases[0] + (i * n + k) * element_bytes
                            out[at + 1] = bases[1] + (k * n + j) * element_bytes
                            out[at + 2] = bases[2] + (i * n + j) * element_bytes
                            at += 3


def _compiled_nest() -> Any:
    from course_lib.hardware import loop_kernels

    return loop_kernels.matmul_nest


def cyclic_scan_stream(
    num_lines: int, *, passes: int, line_bytes: int = 64, alternate: bool = False
) -> AddressStream:
    """Touch each of ``num_lines`` lines once, ``passes`` times around; with ``alternate`` every second pass runs back.

    >>> cyclic_scan_stream(3, passes=2, alternate=True).addresses.tolist()
    [0, 64, 128, 128, 64, 0]
    """
    if min(num_lines, passes) < 0 or line_bytes < 1:
        raise InvalidInputError("lines and passes are 0 or more", given=(num_lines, passes, line_bytes))
    out = []
    for turn in range(passes):
        backward = alternate and turn % 2 == 1
        for line in range(num_lines - 1, -1, -1) if backward else range(num_lines):
            out.append(line * line_bytes)  # the loop is the program
    addresses = np.array(out, dtype=np.int64)
    return AddressStream(addresses=addresses, is_write=np.zeros(addresses.size, dtype=bool))


def transpose_stream(
    n: int, *, tile: int | None = None, element_bytes: int = 4, line_bytes: int = 64
) -> AddressStream:
    """Addresses of ``B[j,i] = A[i,j]``: read A along rows, write B along columns; with ``tile`` block by block.

    Args: as :func:`matmul_stream`. Returns: 2 n^2 accesses and the transposed matrix.

    >>> transpose_stream(2).addresses.tolist()
    [0, 64, 4, 72, 8, 68, 12, 76]
    """
    block = n if tile is None else tile
    if min(n, block, element_bytes, line_bytes) < 1 or n % block:
        raise InvalidInputError("sizes are 1 or more and the tile divides n", given=f"n={n}, tile={tile}")
    base = -(-n * n * element_bytes // line_bytes) * line_bytes
    source, _ = _operands(n)
    result = np.zeros(n * n)
    out = []
    for tile_i in range(0, n, block):
        for tile_j in range(0, n, block):
            for i in range(tile_i, tile_i + block):
                for j in range(tile_j, tile_j + block):
                    result[j * n + i] = source[i * n + j]
                    out += [(i * n + j) * element_bytes, base + (j * n + i) * element_bytes]
    addresses = np.array(out, dtype=np.int64)
    return AddressStream(
        addresses=addresses, is_write=np.arange(addresses.size) % 2 == 1, result=result.reshape(n, n)
    )


def matmul_misses_closed_form(n: int, *, line_elements: int, order: str = "ijk", tile: int | None = None) -> int:
    """Misses of :func:`matmul_stream` in a fully associative LRU cache, on paper.

    ============ ==========================
    ijk, ikj     ``n^3/L + 2 n^2/L``
    jki          ``2 n^3 + n^2``
    tiles of b   ``2 n^3/(b L) + n^2/L``
    ============ ==========================

    Args:
        n: rows and columns, a multiple of ``line_elements``.
        line_elements: L, numbers in a line, 2 or more.
        order: ``"ijk"``, ``"ikj"`` or ``"jki"``; inside tiles ``"ijk"``.
        tile: b, a multiple of L that divides n, or None.

    Raises:
        UnsupportedError: no closed form is kept for this nest.

    Assumes: the cache has between the two sizes that :func:`matmul_misses_validity` gives.

    >>> [matmul_misses_closed_form(48, line_elements=16, order=order) for order in ("ijk", "ikj", "jki")]
    [7200, 7200, 223488]
    >>> matmul_misses_closed_form(48, line_elements=16, tile=16)
    1008
    """
    _check_closed_form(n, line_elements, order, tile)
    if tile is not None:
        return 2 * n**3 // (tile * line_elements) + n**2 // line_elements
    if order == "jki":
        return 2 * n**3 + n**2
    return n**3 // line_elements + 2 * n**2 // line_elements


def matmul_misses_validity(
    n: int, *, line_elements: int, order: str = "ijk", tile: int | None = None
) -> tuple[int, int | None]:
    """Cache sizes in lines, smallest and largest, for which the closed form is exact; None: no largest.

    Below the first, a line that the form counts as kept is dropped: its stack distance is one less than this size.
    Above the second, a line that the form counts as dropped is kept. With l = n/L lines in a row (t = b/L in a tile):

    ============ ============================================== =====================
    ijk          B's column and A's row: ``n + l + 1``          B: ``n l + 2 l``
    ikj          C's row, B's rows, 2 of A: ``2 l + 2``         B: ``n l + 2 l``
    jki          the three lines of a step: ``3``               A, C: ``2 n``
    tiles of b   about four tiles, ``4 b t`` and some           A: ``(2 n/b + 1) b t - 1``
    ============ ============================================== =====================

    Args, Raises: as :func:`matmul_misses_closed_form`.

    >>> matmul_misses_validity(48, line_elements=16), matmul_misses_validity(48, line_elements=16, tile=16)
    ((52, 150), (64, 111))
    """
    _check_closed_form(n, line_elements, order, tile)
    lines = n // line_elements
    if tile is not None and tile < n:
        edge = tile // line_elements
        partial = {1: -1, 2: 0}.get(edge, edge - 1)  # rows of A that the first and last columns of C leave out
        return 4 * tile * edge + partial + 1, (2 * n // tile + 1) * tile * edge - 1
    if tile is not None:
        return n * lines + 3 * lines + 1, None  # one tile: only first touches miss, once all of B stays
    if order == "jki":
        return 3, 2 * n
    smallest = n + lines + 1 if order == "ijk" else (2 * lines + 2 if lines > 1 else 3)
    return smallest, n * lines + 2 * lines


def _check_closed_form(n: int, line_elements: int, order: str, tile: int | None) -> None:
    known = order in ("ijk", "ikj", "jki") if tile is None else order == "ijk"
    whole = line_elements >= 2 and n >= 3 and n % line_elements == 0
    if tile is not None:
        whole = whole and tile >= 3 and tile % line_elements == 0 and n % tile == 0
    if not known or not whole:
        raise UnsupportedError(
            f"no closed form is kept for n={n}, L={line_elements}, order={order}, tile={tile}: it needs n (and the "
            "tile) in whole lines of 2 or more, 3 or more, and ijk, ikj or jki (ijk in tiles). Simulate the stream."
        )
