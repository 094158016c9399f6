"""Each named flaw of a submission loses exactly its parts on the held-out runs, and no others."""

import pytest

from grading.capstone.judging import PARTS
from grading.capstone.memo import Effect
from tests.capstone.submissions import COMMITTED, EVERY_QUERY_HEAD, write_submission

LAST = "    terms = {"  # predict, just before its dict is put together

MODEL_FLAWS = {
    # Constants fitted on the wrong bytes hide the mistake in time; bytes, and what an fp8 cache saves, give it away.
    "keeps the cache of every query head": (EVERY_QUERY_HEAD, {"bytes", "memo"}),
    "draws without a seed": (
        ((LAST, '    mean["tpot_seconds"] *= 1 + 1e-9 * np.random.default_rng().random()\n' + LAST),), {"reproducible"},
    ),
    "leans on hash order": (
        ((LAST, '    mean["ttft_seconds"] += 1e-9 * (hash("a") % 7)\n' + LAST),), {"reproducible"},
    ),
    # Too fast a machine drains its queue between arrivals, takes more and smaller steps, and so reads more weights.
    "never fits": (
        (("    return tuple(float(value) for value in fitted)", "    return (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0)"),),
        {"times", "first-token", "bytes", "ranking", "memo", "losing-regime"},
    ),
    "adds a fee to the bill": (((LAST, "    dollars += 10\n" + LAST),), {"sound"}),
    "reads the weights once": ((("log.num_iterations * weight_bytes +", "weight_bytes +"),), {"bytes", "sound"}),
    "gives the same first token to all": (
        ((LAST, '    mean["ttft_seconds"] = 1.0\n' + LAST),), {"reproducible", "first-token"},
    ),
    "charges prompts to the cache": (
        (('"compute": compute, "kv": kv,', '"compute": 0.0, "kv": kv + compute,'),), {"ranking"},
    ),
    "unpacks for free": (
        (('"unpack_compute" if dtype_bits(config.weight_dtype) < 16 else "compute"', '"compute"'),),
        {"memo", "losing-regime"},
    ),
}  # fmt: skip

PREDICTED = "percent = -21.3, low = -25.0, high = -17.0"
CHANGE = '[change]\nweight_dtype = "int4-g128"'
LOSING = "prompt_tokens = 3000\noutput_tokens = 40\npredicted_percent = 16.2"
REVERSAL = 'reversal_condition = "Keep'
SHELVED = Effect(percent=-2.3, low=-8.0, high=2.0)

MEMO_FLAWS = {
    "measured number is another": (COMMITTED, (("{ percent = -20.6 }", "{ percent = -28.0 }"),), {"memo"}),
    "error bar is understated": (COMMITTED, (("error_bar = 3.1", "error_bar = 0.5"),), {"memo"}),
    "nothing was committed": (None, (), {"gain", "memo"}),
    "memo states another interval": (Effect(percent=-21.3, low=-26.0, high=-16.0), (), {"memo"}),
    "interval misses": (
        Effect(percent=-21.3, low=-23.0, high=-20.9), ((PREDICTED, "percent = -21.3, low = -23.0, high = -20.9"),),
        {"gain"},
    ),
    "interval holds everything": (
        Effect(percent=-21.3, low=-60.0, high=0.0), ((PREDICTED, "percent = -21.3, low = -60.0, high = 0.0"),),
        {"gain"},
    ),
    "another change made the gain": (
        Effect(percent=-15.3, low=-20.0, high=-10.0),
        (
            (CHANGE, "[change]\nmax_batch = 128"), ("[enabling]", '[enabling]\nweight_dtype = "fp8"'),
            (PREDICTED, "percent = -15.3, low = -20.0, high = -10.0"), ("{ percent = -20.6 }", "{ percent = -14.6 }"),
            ("error_bar = 3.1", "error_bar = 3.7"), ("predicted_percent = 16.2", "predicted_percent = 17.7"),
        ),
        {"ablation"},
    ),
    "losing regime wins": (
        COMMITTED,
        ((LOSING, "prompt_tokens = 200\noutput_tokens = 400\npredicted_percent = -51.9"),), {"losing-regime"},
    ),
    "reversal has no number": (COMMITTED, ((REVERSAL, 'reversal_condition = "If it regresses."\n# "'),), {"memo"}),
    "gain is within the noise": (
        SHELVED,
        (
            ('baseline = "l40s-base"', 'baseline = "h100-base"'), (CHANGE, '[change]\nweight_dtype = "fp8"'),
            (PREDICTED, "percent = -2.3, low = -8.0, high = 2.0"), ("{ percent = -20.6 }", "{ percent = -2.1 }"),
            ("error_bar = 3.1", "error_bar = 2.3"), ('{ weight_dtype = "fp8" }', '{ weight_dtype = "int4-g128" }'),
            ("predicted_percent = -12.3", "predicted_percent = -8.1"),
            ("predicted_percent = -6.8", "predicted_percent = -3.5"),
            ("predicted_percent = 16.2", "predicted_percent = 32.4"),
        ),
        {"gain"},
    ),
}  # fmt: skip


def named(parts):
    return {f"capstone-{part}" for part in parts}


def test_the_excellent_submission_loses_nothing_on_two_draws_of_held_out_runs(excellent, lost):
    assert lost(excellent, seed="0") == set()
    assert lost(excellent, seed="another course") == set()


ANSWER = """
def predict(config, machine, workload):
    n = {value}
    terms = dict.fromkeys(("weights", "compute", "kv", "other"), n)
    names = ("ttft_seconds", "tpot_seconds", "tokens_per_second", "usd_per_month", "bytes_moved")
    return dict.fromkeys(names, n) | {{"breakdown": terms}}
"""
JUNK = {
    "ones": ANSWER.format(value="1.0"),
    "nan": ANSWER.format(value="float('nan')"),
    "claims to equal all": ANSWER.format(value="type('E', (float,), {'__eq__': lambda *_: True})(1)"),
    "leaves": "import os\nos._exit(0)\n",
    "is no Python": "def predict(:\n",
    "is empty": "",
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_model_of_no_worth_earns_nothing_however_good_the_memo(junk, tmp_path, lost):
    folder = write_submission(tmp_path)
    (folder / "model.py").write_text(JUNK[junk], encoding="utf-8")
    assert lost(folder) == set(PARTS)  # the commitment is right too


def test_points_are_eighty_and_each_part_has_a_flaw_that_loses_it():
    assert sum(points for points, _ in PARTS.values()) == 80
    tried = set().union(*(parts for _, parts in MODEL_FLAWS.values()), *(parts for *_, parts in MEMO_FLAWS.values()))
    assert named(tried) == set(PARTS)


@pytest.mark.parametrize("flaw", MODEL_FLAWS)
def test_a_flaw_of_the_model_loses_exactly_its_parts(flaw, tmp_path, lost):
    patches, expected = MODEL_FLAWS[flaw]
    assert lost(write_submission(tmp_path, model=patches)) == named(expected)


@pytest.mark.parametrize("flaw", MEMO_FLAWS)
def test_a_flaw_of_the_memo_loses_exactly_its_parts(flaw, tmp_path, lost):
    committed, patches, expected = MEMO_FLAWS[flaw]
    assert lost(write_submission(tmp_path, memo=patches), committed) == named(expected)
