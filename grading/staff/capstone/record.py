"""Record the capstone's runs: ``python -m grading.staff.capstone.record`` (some minutes; the same bytes each time).

Writes ``capstone/recordings.json`` (public, to fit on) and ``capstone/replay.json`` (public, opened after the
predictions) under grading/staff/starter, and ``heldout.json`` (staff, to grade on) beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from grading.capstone.records import MACHINES, Cell, EngineConfig, Traffic, catalogue_machine
from grading.staff.capstone.machines import HERE, StepRecorder, measure

STARTER = HERE.parent / "starter" / "capstone"
DRAW_SEED = 4_711
NUM_HELD_OUT = 36
NUM_STEPS = 40
READING_ERROR = 0.01
"""Standard deviation of the reading error on a recorded step, as a share; the figures of a run carry none."""

ABOUT = (
    "Simulated runs. Data-sheet numbers and prices are cited in the course library; what the machines reach of them "
    "is invented for the capstone and was not measured on hardware. Figures are means over 5 repetitions."
)
PUBLIC_MODELS = ("llama-3-8b", "qwen2.5-7b", "llama-3.2-3b")
HELD_OUT_MODELS = ("llama-3-8b", "mistral-7b-v0.3", "qwen3-8b", "llama-3.2-1b", "llama-2-7b", "qwen2.5-1.5b")
BASE = {"model": "llama-3-8b", "max_batch": 64}
BASELINES = {
    "h100-sxm": Traffic(arrival_requests_per_second=None, prompt_tokens=1200, output_tokens=220),
    "a100-80gb-sxm": Traffic(arrival_requests_per_second=None, prompt_tokens=600, output_tokens=160),
    "l40s": Traffic(arrival_requests_per_second=None, prompt_tokens=1000, output_tokens=200),
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"kv_dtype": "fp8"}, {"weight_dtype": "fp8"}, {"weight_dtype": "int4-g128"}, {"max_batch": 128},
    {"kv_dtype": "fp8", "max_batch": 128}, {"weight_dtype": "fp8", "max_batch": 128},
    {"weight_dtype": "fp8", "kv_dtype": "fp8"},
)  # fmt: skip


def public_cells() -> Iterable[Cell]:
    """Six for each machine, chosen so that each constant can be seen."""
    for name in MACHINES:
        machine, short = catalogue_machine(name), name.split("-")[0]
        designs = (
            ("base", EngineConfig(**BASE), BASELINES[name]),
            ("small-batch", EngineConfig(model=PUBLIC_MODELS[2], max_batch=8), _queue(300, 100, 60)),
            ("long-context", EngineConfig(model=PUBLIC_MODELS[1], max_batch=48), _queue(3000, 120, 96)),
            ("online", EngineConfig(model=PUBLIC_MODELS[2], max_batch=64), _online(4.0, 500, 120)),
            ("narrow-weights", EngineConfig(**BASE, weight_dtype="int4-g128"), _queue(900, 120, 96)),
            ("narrow-cache", EngineConfig(model=PUBLIC_MODELS[1], max_batch=96, kv_dtype="fp8"), _queue(400, 150, 120)),
        )
        for label, config, traffic in designs:
            yield Cell(name=f"{short}-{label}", config=config, machine=machine, traffic=traffic)


def held_out_cells(seed: int = DRAW_SEED, count: int = NUM_HELD_OUT) -> Iterable[Cell]:
    """Drawn: machines in turn, everything else by chance; offered load stays below what a replica serves."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        config = EngineConfig(
            model=str(rng.choice(HELD_OUT_MODELS)), weight_dtype=str(rng.choice(["bf16", "bf16", "fp8", "int4-g128"])),
            kv_dtype=str(rng.choice(["bf16", "bf16", "fp8"])), max_batch=int(rng.choice([4, 16, 32, 64, 128])),
        )  # fmt: skip
        prompt, output = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((100, 3000), (40, 400)))
        rate = None if rng.random() < 0.7 else round(float(rng.uniform(0.4, 1.2)), 2)
        traffic = Traffic(
            arrival_requests_per_second=rate, prompt_tokens=prompt, output_tokens=output,
            num_requests=int(rng.choice([64, 96, 128])),
        )  # fmt: skip
        machine = catalogue_machine(MACHINES[number % len(MACHINES)])
        yield Cell(name=f"held-out-{number:02}", config=config, machine=machine, traffic=traffic)


def replay_cells() -> Iterable[Cell]:
    """Each baseline with each change of the list."""
    for base in (cell for cell in public_cells() if cell.name.endswith("-base")):
        for change in CHANGES:
            yield base.with_changes(**change)


def record(cell: Cell, *, num_steps: int = 0) -> dict[str, Any]:
    """One entry: the cell, what was measured, and (for fitting) steps read with an error."""
    measured, recorders = measure(cell)
    entry: dict[str, Any] = {"cell": cell.to_dict(), "measured": rounded(measured)}
    if num_steps:
        entry["steps"] = _sampled(recorders[0], num_steps, cell.name)
    return entry


def rounded(value: Any) -> Any:
    """Nine significant digits: the same file from any processor."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.9g}")


def _sampled(recorder: StepRecorder, count: int, name: str) -> list[list[float]]:
    """Half of the samples from steps with a prompt, half without, in order, each read with an error."""
    rng = np.random.default_rng([DRAW_SEED, *name.encode()])
    steps = np.array(recorder.steps)
    groups = [np.flatnonzero(steps[:, 0] > 0), np.flatnonzero(steps[:, 0] == 0)]
    chosen = np.sort(np.concatenate([rng.choice(g, min(count // 2, len(g)), replace=False) for g in groups]))
    read = np.array(recorder.seconds)[chosen] * (1 + READING_ERROR * rng.standard_normal(len(chosen)))
    return [[*map(int, steps[i]), float(f"{seconds:.6g}")] for i, seconds in zip(chosen, read)]


def _queue(prompt: int, output: int, count: int) -> Traffic:
    return Traffic(
        arrival_requests_per_second=None, prompt_tokens=prompt, output_tokens=output, num_requests=count
    )


def _online(rate: float, prompt: int, output: int) -> Traffic:
    return Traffic(
        arrival_requests_per_second=rate, prompt_tokens=prompt, output_tokens=output, num_requests=120
    )


def write(path: Path, entries: list[dict[str, Any]], **more: Any) -> None:
    """One entry a line, so that a change shows as one."""
    head = json.dumps({"about": ABOUT, **more}, indent=1)[:-2]
    body = ",\n".join(json.dumps(entry) for entry in entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "entries": [\n{body}\n]}}\n', encoding="utf-8")


def main() -> None:
    steps = "each is [new prompt tokens, decoding rows, KV tokens read, seconds]; seconds read with 1 % error"
    public = [record(cell, num_steps=NUM_STEPS) for cell in public_cells()]
    write(STARTER / "recordings.json", public, steps=steps)
    write(STARTER / "replay.json", [record(cell) for cell in replay_cells()])
    write(HERE / "heldout.json", [record(cell) for cell in held_out_cells()], seed=DRAW_SEED)


if __name__ == "__main__":
    main()
