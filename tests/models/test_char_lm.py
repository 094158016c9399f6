"""The trained character model: its file, its loss, its cache, its shape, and that it can be trained again."""

from __future__ import annotations

import hashlib
import json
import math
from importlib import resources

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.models import SIZES, CharLMSize, decode, encode
from course_lib.models.char_lm import CharLM, KVCache, evaluation_loss, evaluation_slice, load_char_lm
from course_lib.models.train_char_lm import Recipe, main, train

DATA = resources.files("course_lib.models") / "data"
LOSS_TOLERANCE = 1e-3  # fp32 sums in another order; the record keeps 4 digits
CACHE_TOLERANCE = 2e-5  # logits of size 10 in fp32, summed in another order


def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text())


@pytest.mark.parametrize("name", SIZES)
def test_the_weight_file_is_the_recorded_one_in_fp16_and_under_a_megabyte(name):
    content = (DATA / f"{name}.npz").read_bytes()
    assert hashlib.sha256(content).hexdigest() == record(name)["weights_sha256"]
    assert len(content) < 1_000_000
    with (DATA / f"{name}.npz").open("rb") as stream, np.load(stream) as archive:
        assert {archive[key].dtype for key in archive.files} == {np.dtype(np.float16)}


@pytest.mark.parametrize("name", SIZES)
def test_the_evaluation_loss_is_the_recorded_one(name):
    loss = evaluation_loss(load_char_lm(name))
    assert loss == pytest.approx(record(name)["evaluation_loss_nats_per_char"], abs=LOSS_TOLERANCE)


def test_the_larger_model_predicts_better_and_both_beat_character_frequencies():
    losses = {name: record(name)["evaluation_loss_nats_per_char"] for name in SIZES}
    _, counts = np.unique(evaluation_slice(), return_counts=True)
    entropy = -(counts / counts.sum() * np.log(counts / counts.sum())).sum()
    assert losses["char-lm"] < losses["char-lm-small"] < entropy < math.log(96)


def test_an_untrained_model_is_at_chance():
    small = CharLM(CharLMSize(model_size=8, num_layers=1, num_heads=1))
    for parameter in small.parameters():
        torch.nn.init.zeros_(parameter)
    assert evaluation_loss(small, evaluation_slice()[:4]) == pytest.approx(math.log(96), abs=1e-6)


def test_parameters_by_hand():
    # (96 + 128)*96 = 21,504; a layer 12*96*96 + 4*96 = 110,976, four 443,904; last norm 192
    assert SIZES["char-lm"].num_parameters == 21_504 + 443_904 + 192 == 465_600
    # (96 + 128)*32 + 12*32*32 + 4*32 + 64
    assert SIZES["char-lm-small"].num_parameters == 7_168 + 12_288 + 128 + 64 == 19_648


@settings(max_examples=15, deadline=None)
@given(heads=st.integers(1, 4), head=st.integers(1, 6), layers=st.integers(1, 3), positions=st.integers(1, 9))
def test_the_closed_form_counts_every_parameter(heads, head, layers, positions):
    size = CharLMSize(model_size=heads * head, num_layers=layers, num_heads=heads, num_positions=positions)
    with torch.device("meta"):
        model = CharLM(size)
    assert sum(parameter.numel() for parameter in model.parameters()) == size.num_parameters


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), prompt=st.integers(1, 12), steps=st.integers(1, 5))
def test_cached_decoding_equals_the_full_pass(seed, prompt, steps):
    model = load_char_lm()
    tokens = torch.from_numpy(np.random.default_rng(seed).integers(0, 96, (2, prompt + steps)))
    with torch.no_grad():
        full = model(tokens)
        cache = KVCache(model.size, 2)
        pieces = [model(tokens[:, :prompt], cache)]
        pieces += [model(tokens[:, [t]], cache) for t in range(prompt, prompt + steps)]
    assert cache.lengths.tolist() == [prompt + steps] * 2
    assert (torch.cat(pieces, 1) - full).abs().max() < CACHE_TOLERANCE


def test_rows_of_different_lengths_share_a_batch():
    model = load_char_lm()
    texts = [encode("The for statement").astype(np.int64), encode("def").astype(np.int64)]
    batch = KVCache(model.size, 2)
    alone = []
    with torch.no_grad():
        for row, text in enumerate(texts):
            single = KVCache(model.size, 1)
            model(torch.from_numpy(text)[None], single)
            batch.keys[:, row], batch.values[:, row] = single.keys[:, 0], single.values[:, 0]
            batch.lengths[row] = len(text)
            alone.append(model(torch.tensor([[5]]), single)[0])
        together = model(torch.tensor([[5], [5]]), batch)
    assert (together - torch.stack(alone)).abs().max() < CACHE_TOLERANCE


def test_later_characters_do_not_change_earlier_predictions():
    model = load_char_lm()
    one, other = torch.tensor([[3, 4, 5, 6]]), torch.tensor([[3, 4, 90, 91]])
    with torch.no_grad():
        assert torch.equal(model(one)[:, :2], model(other)[:, :2])


def test_greedy_text_is_the_argmax_of_the_full_pass_at_every_step():
    model = load_char_lm()
    prompt = torch.from_numpy(encode("The try statement specifies ").astype(np.int64))[None]
    new = model.generate(prompt, 12)
    tokens = prompt
    for t in range(12):
        with torch.no_grad():
            expected = model(tokens)[:, -1].argmax(-1, keepdim=True)
        assert torch.equal(expected, new[:, [t]])
        tokens = torch.cat([tokens, expected], 1)
    assert " " in decode(new.numpy())


def test_the_cache_holds_what_its_formula_says():
    # 2 (K and V) * 4 layers * 3 rows * 4 heads * 128 positions * 24 * 4 bytes
    assert KVCache(SIZES["char-lm"], 3).nbytes == 2 * 4 * 3 * 4 * 128 * 24 * 4


def test_sixty_steps_of_training_from_nothing_end_below_a_bound():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, loss = train("char-lm", Recipe(), stop_after=60)
    finally:
        torch.set_num_threads(threads)
    assert loss < 3.0  # 4.56 is chance, 3.1 is character frequencies
    assert evaluation_loss(model, evaluation_slice()[:32]) < 3.0


def test_the_script_writes_weights_a_record_and_its_progress(tmp_path, capsys):
    main(["--name", "char-lm-small", "--steps", "50", "--folder", str(tmp_path)])
    written = json.loads((tmp_path / "char-lm-small.json").read_text())
    content = (tmp_path / "char-lm-small.npz").read_bytes()
    assert written["weights_sha256"] == hashlib.sha256(content).hexdigest()
    assert written["recipe"]["num_steps"] == 50
    assert "step    50" in capsys.readouterr().out


def test_the_recipe_is_the_recorded_one():
    assert record("char-lm")["recipe"] == {
        "num_steps": 1184, "num_sequences": 32, "learning_rate": Recipe().learning_rate, "num_warmup_steps": 60,
        "weight_decay": Recipe().weight_decay, "seed": Recipe().seed,
    }  # fmt: skip


def test_the_learning_rate_warms_up_peaks_and_falls_to_a_tenth():
    recipe = Recipe(num_steps=100, learning_rate=1.0, num_warmup_steps=10)
    assert recipe.learning_rate_at(0) == pytest.approx(0.1)
    assert recipe.learning_rate_at(10) == 1.0
    assert recipe.learning_rate_at(55) == pytest.approx(0.55)
    assert recipe.learning_rate_at(100) == pytest.approx(0.1)


def test_too_many_tokens_unknown_names_and_bad_sizes_are_refused():
    model = CharLM("char-lm-small")
    with pytest.raises(InvalidInputError, match="128 positions"):
        model(torch.zeros(1, 129, dtype=torch.long))
    cache = KVCache(model.size)
    model(torch.zeros(1, 128, dtype=torch.long), cache)
    with pytest.raises(InvalidInputError, match="128 positions"):
        model(torch.zeros(1, 1, dtype=torch.long), cache)
    with pytest.raises(UnknownNameError, match="char-lm-small"):
        load_char_lm("char-lm-smal")
    with pytest.raises(InvalidInputError, match="num_heads divides"):
        CharLMSize(model_size=10, num_layers=1, num_heads=3)
    with pytest.raises(InvalidInputError, match="num_layers"):
        CharLMSize(model_size=10, num_layers=0, num_heads=1)
