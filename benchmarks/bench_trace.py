"""Speed of the trace room, as ratios to a peer in the same run.

Rows: import time beside numpy, trace_torch beside torch.utils.flop_counter on Llama-3-70B on the
meta device, and the overhead of record() per operation. Run: python benchmarks/bench_trace.py
"""

from __future__ import annotations

import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.serving.model_shape import model_shape
from course_lib.serving.reference_decoder import reference_decoder
from course_lib.trace import Table, trace_torch


def llama_70b_on_meta(num_tokens: int = 2048) -> tuple[nn.Module, torch.Tensor]:
    """Llama-3-70B in bf16 on the meta device, and one sequence of tokens."""
    return reference_decoder(model_shape("llama-3-70b")), torch.zeros(1, num_tokens, dtype=torch.long, device="meta")


def seconds(*runs: Callable[[], object], repeats: int = 5) -> tuple[float, ...]:
    """Least CPU time of each run, taken in turns; other processes on the machine do not count."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for index, run in enumerate(runs):
            gc.collect()
            start = time.process_time()
            run()
            best[index] = min(best[index], time.process_time() - start)
    return tuple(best)


def import_seconds(statement: str) -> float:
    """Median time of an import in a fresh interpreter."""
    code = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)


def stock_count(model: nn.Module, tokens: torch.Tensor) -> int:
    """FLOPs by torch.utils.flop_counter, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    model.zero_grad(set_to_none=True)
    return int(counter.get_total_flops())


RECORD = """
import gc, time
from course_lib.tensor import Tensor
from course_lib.trace import record
a, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.0, 2.0], [3.0, 4.0]])
def plain():
    for _ in range(2000): a @ b
def recorded():
    with record(): plain()
best = [9.0, 9.0]
for _ in range(15):
    for i, run in enumerate((plain, recorded)):
        gc.collect(); s = time.process_time(); run(); best[i] = min(best[i], time.process_time() - s)
print((best[1] - best[0]) / 2000)
"""


def record_overhead_seconds() -> float:
    """CPU seconds that record() adds to an operation, in a fresh interpreter that holds no torch."""
    return float(subprocess.run([sys.executable, "-c", RECORD], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure and print."""
    rows: list[tuple[str, str, str, str]] = []
    numpy, room = import_seconds("import numpy"), import_seconds("import course_lib.trace")
    rows.append(("import course_lib.trace beside import numpy", f"{room:.3f} s", f"{numpy:.3f} s",
                 f"{room / numpy:.2f}"))  # fmt: skip
    model, tokens = llama_70b_on_meta()
    trace = trace_torch(model, tokens)  # also warms both up
    stock = stock_count(model, tokens)
    ours_seconds, stock_seconds = seconds(lambda: trace_torch(model, tokens), lambda: stock_count(model, tokens))
    rows.append(("trace 70B on meta beside FlopCounterMode", f"{ours_seconds:.2f} s", f"{stock_seconds:.2f} s",
                 f"{ours_seconds / stock_seconds:.2f}"))  # fmt: skip
    rows.append(("matmul FLOPs of that trace", f"{trace.matmul_flops:,}", f"{stock:,}",
                 f"{trace.matmul_flops / stock}"))  # fmt: skip
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rows.append(("peak resident memory beside the budget", gigabytes(resident), "1 GB", f"{resident / 1e9:.2f}"))
    overhead = record_overhead_seconds()
    rows.append(("record() overhead an operation beside the budget", f"{overhead * 1e6:.1f} us", "20 us",
                 f"{overhead / 20e-6:.2f}"))  # fmt: skip
    print(Table(header=("what", "ours", "peer", "ratio"), rows=tuple(rows)))


def gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"


if __name__ == "__main__":
    main()
