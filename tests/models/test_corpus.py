"""The committed tokens: hashes, coding, and that the evaluation windows were never seen."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.models.corpus import VOCABULARY, corpus, cut_windows, decode, encode, find_unseen, pydoc_text


@given(st.text(alphabet=VOCABULARY))
def test_decoding_undoes_encoding(text):
    assert decode(encode(text)) == text


def test_characters_outside_the_vocabulary_become_question_marks():
    assert decode(encode("naïve “x”")) == "na?ve ?x?"


def test_the_vocabulary_is_newline_and_printable_ascii_once_each():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 96
    assert VOCABULARY[0] == "\n"
    assert all(character == "\n" or character.isprintable() for character in VOCABULARY)


def test_the_committed_tokens_are_a_text_in_two_parts():
    tokens = corpus()
    assert len(tokens.training) + len(tokens.evaluation) == 465_126
    assert "statement" in decode(tokens.training[:20_000])


def test_this_pythons_help_is_the_same_text_or_mostly_so():
    tokens = corpus()
    committed = decode(np.concatenate([tokens.training, tokens.evaluation]))
    here = decode(encode(pydoc_text()))
    if sys.version_info[:3] == (3, 11, 7):
        assert here == committed
    words, own = (set(re.findall("[A-Za-z]{4,}", text)) for text in (committed, here))
    assert len(words & own) > 0.6 * len(words)  # texts drift between versions; another text would share far less


def test_the_unseen_windows_repeat_nothing_of_the_training_text():
    tokens = corpus()
    assert np.array_equal(find_unseen(tokens.training, tokens.evaluation), tokens.is_unseen)
    text = tokens.training.tobytes()
    for window in cut_windows(tokens.evaluation)[tokens.is_unseen][::9]:  # an independent route, on a ninth of them
        row = window.tobytes()
        assert not any(row[i : i + 48] in text for i in range(0, 81, 16))
    assert 0 < tokens.is_unseen.sum() < len(tokens.is_unseen)


def test_a_planted_repetition_is_found():
    rng = np.random.default_rng(0)
    training, evaluation = (rng.integers(0, 96, size, np.uint8) for size in (1000, 600))
    assert find_unseen(training, evaluation).tolist() == [True] * 4
    evaluation[200:250] = training[100:150]  # windows start at 0, 128, 256, 384
    assert find_unseen(training, evaluation).tolist() == [True, False, True, True]


def test_windows_overlap_by_one_token():
    windows = cut_windows(np.arange(300))
    assert windows.shape == (2, 129)
    assert windows[0, -1] == windows[1, 0] == 128
    assert cut_windows(np.arange(128)).shape == (0, 129)


def test_tokens_outside_the_vocabulary_are_refused():
    with pytest.raises(InvalidInputError, match="0 to 95"):
        decode(np.array([96]))
    assert decode(np.array([], np.int64)) == ""
