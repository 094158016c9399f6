"""The text the small language model learns from: Python's own help topics, one token a character.

``pydoc_data.topics`` ships with every CPython, and its text changes between versions. So that a training run and
a loss mean the same on every Python, the tokens of CPython 3.11.7 are committed, with their hashes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError

__all__ = [
    "EVALUATION_FRACTION", "VOCABULARY", "Corpus", "corpus", "cut_windows", "decode", "encode", "find_unseen",
    "pydoc_text",
]  # fmt: skip

VOCABULARY = "\n" + "".join(chr(code) for code in range(32, 127))
"""The 96 characters of the model: newline and printable ASCII. A token is an index into this text."""

EVALUATION_FRACTION = 0.1
"""The last tenth of the text is never trained on. Topics are in alphabetical order, so it is other topics."""

WINDOW_TOKENS = 128
"""Inputs of one evaluation window."""

LONGEST_SHARED_RUN = 48
"""Characters in a row that an evaluation window may not share with the training text."""

_REPLACEMENT = "?"
_TRAINING_SHA256 = "cfcf9686d2de0ec258edd0babd62d7ad9b9b44a6292a6c2fd45626502e886f4c"
_EVALUATION_SHA256 = "69e2168b6fa8565785ae6f8c9a6f8510aa2be17cb44e00ee7416c00ad66a933a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens to train on and tokens to judge by.

    Args:
        training: uint8 tokens in text order; shape (num_tokens,).
        evaluation: uint8 tokens that follow them in the text.
        is_unseen: for each window of :func:`cut_windows`, whether the training text repeats none of it. The help
            topics quote each other, and a passage that was trained on says nothing about prediction.
    """

    training: NDArray[np.uint8]
    evaluation: NDArray[np.uint8]
    is_unseen: NDArray[np.bool_]


def corpus() -> Corpus:
    """Read the committed tokens and check that they are the ones every recorded loss was measured on.

    Raises:
        InvalidInputError: the file is not the committed one.

    Source: Python Software Foundation, ``pydoc_data.topics`` of CPython 3.11.7, PSF licence.

    >>> len(corpus().training), len(corpus().evaluation)
    (418613, 46513)
    """
    path = resources.files("course_lib.models") / "data" / "pydoc_topics.npz"
    with path.open("rb") as stream, np.load(stream) as archive:
        slices = Corpus(**{name: archive[name] for name in ("training", "evaluation", "is_unseen")})
    for name, tokens, expected in (
        ("training", slices.training, _TRAINING_SHA256), ("evaluation", slices.evaluation, _EVALUATION_SHA256),
    ):  # fmt: skip
        given = hashlib.sha256(tokens.tobytes()).hexdigest()
        if given != expected:
            raise InvalidInputError(
                f"the {name} tokens must be the committed ones, sha256 {expected[:12]}",
                given=given[:12], next_step="Restore course_lib/models/data/pydoc_topics.npz.",
            )  # fmt: skip
    return slices


def find_unseen(training: NDArray[np.uint8], evaluation: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Tell which windows hold no character of a run of :data:`LONGEST_SHARED_RUN` shared with the training text."""
    text, held_out, run = training.tobytes(), evaluation.tobytes(), LONGEST_SHARED_RUN
    seen = {text[start : start + run] for start in range(len(text) - run + 1)}
    is_shared = np.zeros(len(held_out), bool)
    for start in range(len(held_out) - run + 1):
        if held_out[start : start + run] in seen:
            is_shared[start : start + run] = True
    return np.logical_not(cut_windows(is_shared).any(axis=1))


def cut_windows(tokens: NDArray[Any]) -> NDArray[Any]:
    """Cut into windows of 129 that step by 128: inputs, and their targets one later; a shorter rest is left out."""
    starts = np.arange(0, len(tokens) - WINDOW_TOKENS, WINDOW_TOKENS)
    windows: NDArray[Any] = tokens[starts[:, None] + np.arange(WINDOW_TOKENS + 1)]
    return windows


def encode(text: str) -> NDArray[np.uint8]:
    """Turn text into tokens, one a character; characters outside :data:`VOCABULARY` become ``?``.

    >>> encode("if x:\\n").tolist()
    [74, 71, 1, 89, 27, 0]
    """
    index = {character: token for token, character in enumerate(VOCABULARY)}
    unknown = index[_REPLACEMENT]
    return np.fromiter((index.get(character, unknown) for character in text), np.uint8, len(text))


def decode(tokens: NDArray[np.integer]) -> str:
    """Turn tokens back into text; ``decode(encode(text)) == text`` for text in :data:`VOCABULARY`.

    Raises:
        InvalidInputError: a token that is no index into the vocabulary.

    >>> decode(encode("import this"))
    'import this'
    """
    values = np.asarray(tokens).reshape(-1)
    if values.size and not 0 <= values.min() <= values.max() < len(VOCABULARY):
        raise InvalidInputError(
            "a token is an index into the vocabulary",
            allowed=f"0 to {len(VOCABULARY) - 1}", given=f"{values.min()} to {values.max()}",
        )  # fmt: skip
    return "".join(VOCABULARY[token] for token in values.tolist())


def pydoc_text() -> str:
    """Read the help topics of the running Python, in alphabetical order, with an empty line between two.

    On CPython 3.11.7 this is 465,126 characters, whose tokens are the committed corpus.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))
