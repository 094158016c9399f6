"""Checks of the capstone: each runs one part of the judge in grading/capstone on the submission's folder."""

from pathlib import Path

from course_lib.lesson import Diagnosis, Exercise

HINTS = {
    "contract": "predict must return every field of the contract at the top of model.py, as finite numbers.",
    "model-does-not-load": "The judge imports model.py in a fresh process, in a copy of this folder. What does it need "
    "that is not there?",
    "model-raises": "Your model raised an error on a configuration of the contract.",
    "two-runs-differ": "Two fresh processes gave two answers. Which number is drawn without a seed, read from a clock, "
    "or depends on the order of a set?",
    "constant": "One field is the same for every configuration, so it predicts nothing.",
    "inaccurate": "Which term explains the worst cell? Compare your seconds with the recorded steps of its machine, "
    "term by term, before you change anything.",
    "kv-of-every-query-head": "Your bytes fit a cache that keeps keys and values for every query head. In "
    "grouped-query attention several query heads share one: how many heads are cached?",
    "wrong-order": "The dollars are in the wrong order. Does the price stand over the tokens of a replica, and does "
    "the bill depend on the demand?",
    "wrong-binding-term": "The longest term of your breakdown is often not the longest in the recording. Of weights "
    "and compute only the longer counts, step by step: prompts and decodes are different steps.",
    "more-is-slower": "A better machine became slower in your model. Which term has the resource upside down?",
    "dollars-do-not-double": "Dollars are linear in price and in demand. What else does your bill depend on?",
    "below-compulsory": "Fewer bytes than must move: the weights once for every step that cannot be avoided, and every "
    "token's context.",
    "below-roofline": "A time below the data sheet's own. Is a share of the peak above one, or a term divided twice?",
    "negative-dollars": "A bill below zero.",
    "dollars-do-not-follow": "The contract defines the bill from your own tokens per second. Yours does not follow.",
    "no-front-matter": "The fields stand in TOML between two lines of +++ at the very top of memo.md.",
    "no-toml": "The front matter cannot be read as TOML. Strings need quotes; top fields come before any [table].",
    "field-missing": "A field of the template is gone.",
    "field-wrong": "A field of the front matter has a value that no record takes.",
    "interval": "The predicted number lies outside its own interval.",
    "one-change": "A gain is claimed for one change. Whatever else was set belongs into enabling, ablated apart.",
    "alternatives": "What else could you have done, and what does your model say it would have brought?",
    "reversal": "A condition that nobody can check is none. Which number, measured where, turns the decision around?",
    "not-committed": "Commit a number and an interval in the predict cell, and run it, before you open the replay.",
    "interval-too-wide": "An interval that holds everything says nothing. What does the error of your model allow?",
    "not-replayed": "There is no recorded run of this. The README lists what the replay holds.",
    "within-noise": "A gain that is smaller than the noise was not seen. Take a larger change, or shelve this one.",
    "outside-interval": "The effect is real and your interval misses it. That costs these points and nothing else: the "
    "memo is the place to say which term you had wrong.",
    "no-gain": "The change does not lower the bill on this baseline.",
    "gain-stays": "Take the named change out and most of the gain is still there. Which of your changes made it?",
    "same-regime": "A losing regime differs from the baseline in traffic, engine or machine.",
    "model-says-wins": "By your own model the change still wins there. What does the change cost, and when is that all "
    "that is left of it?",
    "bench-says-wins": "Your model says that it loses there, the bench does not. Look at the noise, and at what the "
    "format costs to unpack.",
    "numbers-disagree": "A number of the memo is not the one it claims to be. Copy it from where it was made.",
}

TITLES = {
    "capstone-reproducible": "The same answer, to the byte, from two fresh processes.",
    "capstone-times": "Time per token and tokens per second: median error at most 10 %.",
    "capstone-first-token": "Time to first token: median error at most 20 %.",
    "capstone-bytes": "Bytes moved: within 5 % in three of four configurations.",
    "capstone-ranking": "Dollars in the right order, and the binding term named.",
    "capstone-sound": "Directions, floors, compulsory bytes and dollars are as they must be.",
    "capstone-gain": "A gain above the noise, inside the interval that was committed.",
    "capstone-ablation": "Without the named change at least 80 % of the gain is gone.",
    "capstone-memo": "Every number of the memo is the one it claims to be.",
    "capstone-losing-regime": "A regime where the same change costs money.",
}

POINTS = {
    "capstone-reproducible": 15, "capstone-times": 10, "capstone-first-token": 5, "capstone-bytes": 5,
    "capstone-ranking": 5, "capstone-sound": 10, "capstone-gain": 8, "capstone-ablation": 6, "capstone-memo": 6,
    "capstone-losing-regime": 10,
}  # fmt: skip

CONCEPT = "The judge runs model.py on cells and compares; python -m grading.capstone . says all of it at once."


def _probe(name):
    """Run one part on the folder; silence is a pass."""

    def run(folder):
        from grading.capstone.judging import PARTS, court

        PARTS[name][1](Path(folder).resolve(), court())
        return True

    return run


def _found(name):
    return lambda got, expected: getattr(getattr(got, "error", None), "name", "") == name


EXERCISES = tuple(
    Exercise(
        id=name,
        title=TITLES[name],
        points=points,
        kind="value",
        expected=lambda: True,
        probe=_probe(name),
        diagnoses=tuple(Diagnosis(name=key, predicate=_found(key), hint=hint) for key, hint in HINTS.items()),
        concept=CONCEPT,
        formula="",
        worked="",
    )
    for name, points in POINTS.items()
)
