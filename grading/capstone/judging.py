"""Judge a submission folder: one function for each graded part. A part passes silently or raises a Finding."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.lesson.progress import is_autograding, progress_store
from course_lib.lesson.running import NotAttempted
from grading.capstone.accuracy import MAX_TIME_ERROR, MAX_TTFT_ERROR, check_bytes, check_figures, check_ranking
from grading.capstone.contract import check_contract, check_reproducible, check_sound, soundness_cells
from grading.capstone.execution import answers
from grading.capstone.findings import Finding
from grading.capstone.memo import Effect, Memo, read_memo
from grading.capstone.optimization import Repetitions, check_ablation, check_gain, check_losing, check_memo
from grading.capstone.recordings import Recording, bench, held_out, public, replayed
from grading.capstone.records import Cell

PREDICTION = "capstone-effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """What a submission is held against.

    Args:
        truth: recorded runs that the model must come near.
        run: dollars of a cell in each repetition.
        hears_bench: whether ``run`` can run any cell, and so confirm a losing regime.
        committed: the committed prediction, or None.
    """

    truth: tuple[Recording, ...]
    run: Repetitions
    hears_bench: bool
    committed: Effect | None


def public_court() -> Court:
    """For learners: the public recordings and the replay."""
    return Court(truth=public(), run=replayed, hears_bench=False, committed=committed_effect())


def held_out_court(seed: str = "0", committed: Effect | None = None) -> Court:
    """For grading: held-out recordings, and the bench itself."""
    return Court(truth=held_out(seed), run=bench().usd_of_repetitions, hears_bench=True, committed=committed)


def court() -> Court:
    """The held-out one while nbgrader grades, the public one otherwise."""
    if is_autograding():
        return held_out_court(os.environ.get("TRACE_A_TENSOR_SEED", "0"), committed_effect())
    return public_court()


def committed_effect() -> Effect | None:
    """What ``predict("capstone-effect", ...)`` stored: number and interval."""
    entry = progress_store().entry("predictions", PREDICTION)
    numbers = [entry.get(name) for name in ("value", "low", "high")]
    known = [float(number) for number in numbers if isinstance(number, (int, float))]
    return Effect(percent=known[0], low=known[1], high=known[2]) if len(known) == 3 else None


# Parts


def reproducible(folder: Path, held: Court) -> None:
    """Two fresh processes, the same bytes."""
    cells = [one.cell for one in held.truth]
    first = answers(folder, cells, beside=_later(folder))
    check_reproducible(cells, first, answers(folder, cells, run=2))


def times(folder: Path, held: Court) -> None:
    """Time per token and tokens per second."""
    check_figures(("tpot_seconds", "tokens_per_second"), MAX_TIME_ERROR, held.truth, _answers(folder, held))


def first_token(folder: Path, held: Court) -> None:
    """Time to first token."""
    check_figures(("ttft_seconds",), MAX_TTFT_ERROR, held.truth, _answers(folder, held))


def moved_bytes(folder: Path, held: Court) -> None:
    """Bytes moved."""
    check_bytes(held.truth, _answers(folder, held))


def ranking(folder: Path, held: Court) -> None:
    """Order of the dollars, and the binding term."""
    check_ranking(held.truth, _answers(folder, held))


def sound(folder: Path, held: Court) -> None:
    """The laws."""
    cells = soundness_cells()
    check_sound(cells, answers(folder, cells, beside=_later(folder)))


def gain(folder: Path, held: Court) -> None:
    """One justified optimization, predicted first."""
    check_gain(_memo_of_a_gain(folder), held.committed, held.run)


def ablation(folder: Path, held: Court) -> None:
    """The named change made the gain."""
    check_ablation(_memo_of_a_gain(folder), held.run)


def losing_regime(folder: Path, held: Court) -> None:
    """Where it loses."""
    memo = _memo(folder)
    percent = model_effects(folder, memo)["losing"]
    check_losing(memo, percent, held.run, confirmed_by_bench=held.hears_bench)


def consistent_memo(folder: Path, held: Court) -> None:
    """The memo's numbers are the ones they claim to be."""
    memo = _memo(folder)
    check_memo(memo, held.committed, model_effects(folder, memo), held.run)


PARTS: Mapping[str, tuple[float, Callable[[Path, Court], None]]] = {
    "capstone-reproducible": (15, reproducible),
    "capstone-times": (10, times),
    "capstone-first-token": (5, first_token),
    "capstone-bytes": (5, moved_bytes),
    "capstone-ranking": (5, ranking),
    "capstone-sound": (10, sound),
    "capstone-gain": (8, gain),
    "capstone-ablation": (6, ablation),
    "capstone-memo": (6, consistent_memo),
    "capstone-losing-regime": (10, losing_regime),
}
"""Points and judge of each automatic part: 80 together. A person gives the other 20 (capstone-judgement)."""


def model_effects(folder: Path, memo: Memo) -> dict[str, float]:
    """The model's own effects in per cent: "change", "losing", "alternative 1", ..."""
    cells = _effect_cells(memo)
    found = _checked(folder, cells)
    usd = [one["usd_per_month"] for one in found]
    effects = {"change": usd[1] / usd[0], "losing": usd[3] / usd[2]}
    effects |= {f"alternative {number}": value / usd[0] for number, value in enumerate(usd[4:], 1)}
    return {name: 100 * (ratio - 1) for name, ratio in effects.items()}


def _effect_cells(memo: Memo) -> list[Cell]:
    """The baseline and what was changed, the losing regime without and with the change, the alternatives."""
    others = [memo.baseline.with_changes(**other.change) for other in memo.alternatives]
    return [memo.baseline, memo.optimized, *memo.losing_pair, *others]


def _later(folder: Path) -> list[Cell]:
    """Cells that other parts will ask for: one process answers all of them."""
    try:
        effects = _effect_cells(_memo(folder))
    except (Finding, NotAttempted):
        effects = []
    return [*soundness_cells(), *effects]


def _memo(folder: Path) -> Memo:
    return read_memo(folder / "memo.md")


def _memo_of_a_gain(folder: Path) -> Memo:
    """The memo, where the model too says that its change gains: a gain only looked up explains nothing."""
    memo = _memo(folder)
    percent = model_effects(folder, memo)["change"]
    if percent >= 0:
        raise Finding("no-gain", f"your model says {percent:+.2f} % for the change: by its word there is no gain")
    return memo


def _answers(folder: Path, held: Court) -> Sequence[Mapping[str, Any]]:
    return _checked(folder, [one.cell for one in held.truth])


def _checked(folder: Path, cells: Sequence[Cell]) -> Sequence[Mapping[str, Any]]:
    """Answers that keep the contract."""
    found = answers(folder, cells, beside=_later(folder))
    for cell, one in zip(cells, found, strict=True):
        check_contract(cell, one)
    return found


def judge_part(name: str, folder: Path, held: Court) -> float:
    """Points of one part; 0 for a Finding or a stub."""
    points, part = PARTS[name]
    try:
        part(folder, held)
    except (Finding, NotAttempted):
        return 0.0
    return points
