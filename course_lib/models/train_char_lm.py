"""Train the small language model: ``python -m course_lib.models.train_char_lm`` (three to six minutes on one core).

The committed weights are this script's output with its defaults. Floating-point sums differ between processors, so
another machine's weights differ in their last digits and its loss by a few thousandths.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from course_lib.models.char_lm import SIZES, CharLM, evaluation_loss, initialize
from course_lib.models.corpus import EVALUATION_FRACTION, corpus, encode, find_unseen, pydoc_text

__all__ = ["Recipe", "main", "save", "tokenize_pydoc", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides a training run, with its seed.

    Args:
        num_steps: optimizer steps.
        num_sequences: windows a step.
        learning_rate: peak; warmed up over ``num_warmup_steps``, then a half cosine down to a tenth.
        weight_decay: AdamW's, on matrices only.
        seed: of the starting weights and of the order of the windows.
    """

    num_steps: int = 1184
    num_sequences: int = 32
    learning_rate: float = 4e-3
    num_warmup_steps: int = 60
    weight_decay: float = 0.1
    seed: int = 20260301

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of a step, 0 the first."""
        warmup = min(1.0, (step + 1) / self.num_warmup_steps)
        progress = max(0.0, (step - self.num_warmup_steps) / max(1, self.num_steps - self.num_warmup_steps))
        return self.learning_rate * warmup * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def train(
    name: str, recipe: Recipe, *, stop_after: int | None = None, report: Callable[[str], None] | None = None
) -> tuple[CharLM, float]:
    """Train from nothing; return the model and the mean training loss of its last 20 steps [nats/char].

    Args:
        name: a key of :data:`course_lib.models.char_lm.SIZES`.
        recipe: the schedule.
        stop_after: leave the schedule after this many steps.
        report: called with one line of progress every 50 steps.
    """
    model = CharLM(name)
    initialize(model, recipe.seed)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.99))
    tokens, window = torch.from_numpy(corpus().training.astype(np.int64)), model.size.num_positions
    rng = np.random.default_rng(recipe.seed)
    started, losses = time.perf_counter(), []
    for step in range(recipe.num_steps if stop_after is None else stop_after):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate_at(step)
        starts = torch.from_numpy(rng.integers(0, len(tokens) - window, recipe.num_sequences))
        batch = tokens[starts[:, None] + torch.arange(window + 1)]  # (B, T + 1)
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if report and (step + 1) % 50 == 0:
            report(f"step {step + 1:5d}  loss {np.mean(losses[-50:]):.4f}  {time.perf_counter() - started:.0f} s")
    return model.eval(), float(np.mean(losses[-20:]))


def save(model: CharLM, name: str, recipe: Recipe, folder: Path) -> dict[str, object]:
    """Write the weights as fp16 and a record beside them; return the record.

    The recorded loss is that of the stored fp16 weights, not of the fp32 ones that training ended with.
    """
    weights = {key: value.numpy().astype(np.float16) for key, value in model.state_dict().items()}
    np.savez(folder / f"{name}.npz", **weights)
    model.load_state_dict({key: torch.from_numpy(value.astype(np.float32)) for key, value in weights.items()})
    record: dict[str, object] = {
        "name": name,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "evaluation_loss_nats_per_char": round(evaluation_loss(model), 4),
        "weights_sha256": hashlib.sha256((folder / f"{name}.npz").read_bytes()).hexdigest(),
        "recipe": asdict(recipe),
        "trained_with": f"torch {torch.__version__}, CPython {platform.python_version()}, one thread",
        "text": "pydoc_data.topics of CPython 3.11.7, Python Software Foundation, PSF licence",
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    return record


def tokenize_pydoc(path: Path) -> tuple[str, str]:
    """Write this Python's help topics as tokens; return the hashes of the training and evaluation slices.

    The committed file was written by CPython 3.11.7; another version has another text and other hashes.
    """
    tokens = encode(pydoc_text())
    border = len(tokens) - int(len(tokens) * EVALUATION_FRACTION) - 1
    training, evaluation = tokens[:border], tokens[border:]
    np.savez_compressed(path, training=training, evaluation=evaluation, is_unseen=find_unseen(training, evaluation))
    return hashlib.sha256(training.tobytes()).hexdigest(), hashlib.sha256(evaluation.tobytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: train one size and write its weights and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", choices=sorted(SIZES), default="char-lm")
    parser.add_argument("--steps", type=int, default=Recipe().num_steps)
    parser.add_argument("--learning-rate", type=float, default=Recipe().learning_rate)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "data")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the order of the sums, and so the weights, must not depend on the number of cores
    recipe = Recipe(num_steps=given.steps, learning_rate=given.learning_rate)
    model, _ = train(given.name, recipe, report=print)
    record = save(model, given.name, recipe, given.folder)
    print(f"{record['num_parameters']:,} parameters, {record['evaluation_loss_nats_per_char']} nats/char")


if __name__ == "__main__":
    main()
