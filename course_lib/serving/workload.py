"""What arrives: how often, how long the prompts are, how long the answers."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError
from course_lib.serving.token_lengths import Empirical, TokenLengths, token_lengths

__all__ = ["ARRIVALS", "RequestTrace", "Workload"]

ARRIVALS = ("poisson", "uniform", "batch", "recorded")
"""Independent arrivals, equally spaced ones, all at once, or the instants of a recorded trace."""

CSV_COLUMNS = ("arrival_at_seconds", "prompt_tokens", "output_tokens")
_MOST_TOKENS = 10**9
_DEFAULT_NUM_REQUESTS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """Requests in the order of their arrival, one row each; a request's number is its row.

    Args:
        arrival_at_seconds: instants [s], ascending.  # (requests,)
        prompt_tokens: tokens in.  # (requests,)
        output_tokens: tokens out, 1 or more.  # (requests,)
        cached_tokens: leading prompt tokens whose keys and values are already there.  # (requests,)
    """

    arrival_at_seconds: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_at_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests as a law: a rate of arrivals and two distributions of lengths.

    Args:
        arrival_requests_per_second: lambda, above zero [1/s].
        prompt_tokens: tokens in, a number or a distribution.
        output_tokens: tokens out, a number or a distribution.
        prefix_hit_fraction: share of each prompt found in the prefix cache, 0 up to (not including) 1. Its
            prefill is skipped; its KV blocks are still counted for every request. At least one token of a
            prompt is always computed.
        num_requests: how many a simulation draws; None means 1,000, or all of a recorded trace.
        arrivals: ``"poisson"``, ``"uniform"`` (one every ``1/lambda``), ``"batch"`` (all at 0) or ``"recorded"``.
        recorded: the trace behind ``"recorded"``; made by :meth:`from_csv`.

    Raises:
        InvalidInputError: a rate, fraction or count out of range, an unknown kind of arrivals.

    >>> Workload(arrival_requests_per_second=60, prompt_tokens=1500, output_tokens=300).mean_output_tokens
    300.0
    """

    arrival_requests_per_second: float
    prompt_tokens: int | TokenLengths
    output_tokens: int | TokenLengths
    prefix_hit_fraction: float = 0.0
    num_requests: int | None = None
    arrivals: str = "poisson"
    recorded: RequestTrace | None = None

    def __post_init__(self) -> None:
        if not 0 < self.arrival_requests_per_second < math.inf:
            raise InvalidInputError(
                "requests arrive at a rate above zero", given=f"{self.arrival_requests_per_second}/s"
            )
        if not 0 <= self.prefix_hit_fraction < 1:
            raise InvalidInputError(
                "the prefix cache holds a share of the prompt",
                allowed="0 up to, not including, 1",
                given=self.prefix_hit_fraction,
            )
        if self.num_requests is not None and (not isinstance(self.num_requests, int) or self.num_requests < 1):
            raise InvalidInputError("num_requests is 1 or more, or None", given=repr(self.num_requests))
        if self.arrivals not in ARRIVALS:
            raise InvalidInputError("arrivals of a known kind", allowed=", ".join(ARRIVALS), given=repr(self.arrivals))
        if (self.arrivals == "recorded") != (self.recorded is not None):
            raise InvalidInputError("recorded arrivals need a recorded trace", next_step="Use Workload.from_csv(path).")
        token_lengths(self.prompt_tokens)
        token_lengths(self.output_tokens)

    @property
    def mean_prompt_tokens(self) -> float:
        """Expected tokens in."""
        return token_lengths(self.prompt_tokens).mean

    @property
    def mean_output_tokens(self) -> float:
        """Expected tokens out."""
        return token_lengths(self.output_tokens).mean

    def requests(self, rng: np.random.Generator) -> RequestTrace:
        """Draw the requests of one run; the same generator state gives the same requests.

        Args:
            rng: where the randomness comes from; a recorded trace uses none.

        >>> workload = Workload(arrival_requests_per_second=2, prompt_tokens=10, output_tokens=5,
        ...                     num_requests=3, arrivals="uniform")
        >>> workload.requests(np.random.default_rng(0)).arrival_at_seconds.tolist()
        [0.0, 0.5, 1.0]
        """
        if self.recorded is not None:
            num = len(self.recorded) if self.num_requests is None else min(self.num_requests, len(self.recorded))
            arrival = self.recorded.arrival_at_seconds[:num]
            prompt, output = self.recorded.prompt_tokens[:num], self.recorded.output_tokens[:num]
        else:
            num = self.num_requests or _DEFAULT_NUM_REQUESTS
            arrival = self._arrival_at_seconds(rng, num)
            prompt = token_lengths(self.prompt_tokens).sample(rng, num)
            output = token_lengths(self.output_tokens).sample(rng, num)
        cached = np.minimum((prompt * self.prefix_hit_fraction).astype(np.int64), prompt - 1)
        return RequestTrace(arrival, prompt, output, cached)

    def _arrival_at_seconds(self, rng: np.random.Generator, num: int) -> NDArray[np.float64]:
        if self.arrivals == "batch":
            return np.zeros(num)
        if self.arrivals == "uniform":
            return np.arange(num) / self.arrival_requests_per_second
        return np.cumsum(rng.exponential(1.0 / self.arrival_requests_per_second, size=num))

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, prefix_hit_fraction: float = 0.0) -> Workload:
        """Read recorded requests: columns ``arrival_at_seconds,prompt_tokens,output_tokens``, any order of rows.

        The rate is ``(n - 1) / (last - first)``; instants are moved so that the first is 0.

        Args:
            path: the file, with a header line; further columns are ignored.
            prefix_hit_fraction: as in the class.

        Raises:
            InvalidInputError: no such file, a missing column, a value that cannot be used (its line is named).
        """
        rows = _read_rows(Path(path))
        rows.sort(key=lambda row: row[0])
        arrival = np.array([row[0] for row in rows]) - rows[0][0]
        prompt, output = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2))
        span = float(arrival[-1])
        return cls(
            arrival_requests_per_second=(len(rows) - 1) / span if span > 0 else float(len(rows)),
            prompt_tokens=Empirical(tuple(prompt.tolist())),
            output_tokens=Empirical(tuple(output.tolist())),
            prefix_hit_fraction=prefix_hit_fraction,
            arrivals="recorded",
            recorded=RequestTrace(arrival, prompt, output, np.zeros(len(rows), dtype=np.int64)),
        )


def _read_rows(path: Path) -> list[tuple[float, int, int]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read the workload file {path}", given=str(error)) from error
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in CSV_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidInputError(
            f"{path.name} line 1 must name the columns {', '.join(CSV_COLUMNS)}",
            given=", ".join(reader.fieldnames or ()) or "an empty file",
            next_step=f"Missing: {', '.join(missing)}.",
        )
    try:
        rows = [_read_row(f"{path.name} line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise InvalidInputError(f"{path.name} line {reader.line_num} cannot be read", given=str(error)) from error
    if not rows:
        raise InvalidInputError(f"{path.name} holds a header and no requests", next_step="Add a line for each request.")
    return rows


def _read_row(where: str, row: dict[str, str | None]) -> tuple[float, int, int]:
    try:
        arrival = float(row[CSV_COLUMNS[0]] or "")
    except ValueError:
        arrival = math.nan
    if not 0 <= arrival < math.inf:
        raise InvalidInputError(f"{where}: arrival_at_seconds is a number, 0 or more", given=repr(row[CSV_COLUMNS[0]]))
    return arrival, _read_tokens(where, row, CSV_COLUMNS[1]), _read_tokens(where, row, CSV_COLUMNS[2])


def _read_tokens(where: str, row: dict[str, str | None], name: str) -> int:
    text = (row[name] or "").strip()
    if not text.isascii() or not text.isdigit() or not 1 <= float(text) <= _MOST_TOKENS:
        allowed, given = f"1 to {_MOST_TOKENS:,}", repr((row[name] or "")[:40])
        raise InvalidInputError(f"{where}: {name} is a whole number", allowed=allowed, given=given)
    return int(text)
