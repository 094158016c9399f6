"""Sizes beyond any machine are refused before a list is made of them; broken files never end in a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.errors import InvalidInputError
from course_lib.serving.model_shape import model_shape

TINY = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "vocab_size": 10,
}  # fmt: skip


def test_the_largest_number_of_layers_still_counts() -> None:
    # a layer: 2*8*8 + 2*8*8 + 3*8*16 + 2*8 = 656; two tables of 80; the final norm 8
    assert model_shape(TINY | {"num_hidden_layers": 10_000}).num_parameters == 656 * 10_000 + 2 * 80 + 8


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gemma2", "gemma3_text"])
def test_layers_without_end_are_refused_for_each_way_of_windows(family: str) -> None:
    with pytest.raises(InvalidInputError, match="at most 10,000"):
        model_shape(TINY | {"model_type": family, "num_key_value_heads": 1, "num_hidden_layers": 10**15})


def test_an_edit_cannot_ask_for_layers_without_end() -> None:
    with pytest.raises(InvalidInputError, match="at most 10,000"):
        model_shape("gemma-2-2b").with_changes(num_layers=10**15)


@pytest.mark.parametrize("size", [10**12 + 1, 10**400])
def test_a_size_beyond_a_million_million_is_refused(size: int) -> None:
    with pytest.raises(InvalidInputError, match="vocab_size to be at most"):
        model_shape("gpt2").with_changes(vocab_size=size)


def test_endless_nesting_is_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInputError, match="valid JSON"):
        model_shape(str(path))
