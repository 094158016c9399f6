"""Your performance model. The judge runs this file twice, each time in a fresh process, in a copy of this folder.

    predict(config, machine, workload) -> dict

``config`` (EngineConfig), ``machine`` (Machine) and ``workload`` (Traffic) are frozen records; their fields and what
they mean stand in ``grading/capstone/records.py``. All of ``course_lib`` is yours to use, the simulator included. It
knows data sheets; it does not know what these three machines reach of them. ``recordings.json`` beside this file does.

The dict that ``predict`` returns:

    ttft_seconds        time to first token, queueing included: median over requests
    tpot_seconds        time per output token after the first: mean over requests
    tokens_per_second   output tokens of one replica, from the first arrival to the last token
    bytes_moved         weights (P_mm, once a step) and every KV token read, in the whole run
    usd_per_month       730 * usd_per_hour * demand_tokens_per_second / tokens_per_second
    breakdown           busy seconds of the run by term: {"weights", "compute", "kv", "other"}; of weights and
                        compute only the longer counts in each step

The same inputs give the same answer in every process: seed what you draw. A field ``elapsed_seconds`` may be added; it
is the only one that may differ between two runs.
"""

from __future__ import annotations


def predict(config, machine, workload):
    """Predict what one replica does with this traffic."""
    raise NotImplementedError
