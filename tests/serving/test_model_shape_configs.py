"""Reading public configurations: families, defaults, refusals, bad files; and tensor parallelism."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError, UnsupportedError
from course_lib.serving.model_shape import (
    check_tensor_parallel,
    model_shape,
    model_shapes,
    tensor_parallel_degrees,
)

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v2", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "moe_intermediate_size": 16, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip


def changed(base, **keys):
    return {key: value for key, value in (base | keys).items() if value != "drop"}


# Hand-worked


def test_a_file_a_folder_and_a_dict_give_the_same_shape(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    by_file, by_folder = model_shape(str(folder / "config.json")), model_shape(folder)
    assert by_file == by_folder
    assert by_file.name == "my-model"
    assert by_file.num_parameters == model_shape(LLAMA).num_parameters
    assert model_shape(by_file) is by_file


def test_llama_biases_add_what_they_should():
    base = model_shape(LLAMA).num_parameters
    # q 64, k and v 32 each, o 64: 192 a layer; gate and up 96 each, down 64: 256 a layer
    assert model_shape(changed(LLAMA, attention_bias=True)).num_parameters - base == 2 * 192
    assert model_shape(changed(LLAMA, mlp_bias=True)).num_parameters - base == 2 * 256


def test_family_defaults_hold_where_the_file_is_silent():
    silent = changed(LLAMA, num_key_value_heads="drop")
    assert model_shape(silent).num_kv_heads == 4
    assert not model_shape(silent).tied_embeddings
    assert model_shape(changed(LLAMA, model_type="gemma")).tied_embeddings
    assert model_shape(changed(LLAMA, model_type="gemma")).head_size == 256
    assert model_shape(changed(LLAMA, model_type="qwen3")).head_size == 128
    assert model_shape(changed(LLAMA, model_type="mistral")).attention_windows == (4096, 4096)
    assert model_shape(changed(LLAMA, model_type="mistral", sliding_window=None)).attention_windows == (None, None)
    assert model_shape(changed(LLAMA, head_dim=32)).head_size == 32


def test_gemma_3_4b_reads_its_text_part_as_published():
    published = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }  # fmt: skip
    assert model_shape(published).num_parameters == model_shape("gemma-3-4b").num_parameters


def test_qwen_windows_start_at_max_window_layers():
    keys = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
    assert model_shape(changed(LLAMA, **keys)).attention_windows == (None, 7)
    assert model_shape(changed(LLAMA, **keys | {"use_sliding_window": False})).attention_windows == (None, None)


def test_dense_and_routed_layers_follow_the_configuration():
    moe = changed(
        LLAMA, model_type="qwen3_moe", num_hidden_layers=6, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=8, decoder_sparse_step=2, mlp_only_layers=[1],
    )  # fmt: skip
    assert model_shape(moe).experts.dense_layers == (0, 1, 2, 4)
    assert model_shape(DEEPSEEK).experts.dense_layers == (0,)
    assert model_shape(changed(DEEPSEEK, moe_layer_freq=2)).experts.dense_layers == (0, 1, 3)


def test_what_the_file_says_beyond_sizes_is_noted():
    notes = " ".join(model_shape("deepseek-v3").notes)
    assert "fp8" in notes
    assert "multi-token-prediction" in notes
    assert "mxfp4" in model_shape("gpt-oss-20b").notes[0]
    assert model_shape("llama-3-8b").notes == ()


# Refusals by name


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"model_type": "gemma3", "vision_config": {}, "text_config": {}}, "vision tower.*text_config"),
        ({"model_type": "mamba"}, "state-space"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "something_new"}, "something_new.*modelled: gpt2"),
        ({"vision_config": {"hidden_size": 1}}, "vision tower"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"add_cross_attention": True}, "cross-attention"),
        ({"num_local_experts": 8}, "num_local_experts in a llama model"),
        ({"kv_lora_rank": 8}, "kv_lora_rank in a llama model"),
        ({"model_type": "gemma2", "layer_types": ["linear_attention"] * 2}, "linear_attention"),
        ({"model_type": "opt", "ffn_dim": 8, "word_embed_proj_dim": 32}, "opt-350m"),
        ({"model_type": "opt", "ffn_dim": 8, "do_layer_norm_before": False}, "opt-350m"),
        (DEEPSEEK | {"attention_bias": True}, "latent attention with biases"),
        (DEEPSEEK | {"index_topk": 2048}, "indexer"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(keys, named):
    with pytest.raises(UnsupportedError, match=named):
        model_shape(LLAMA | keys)


# Limits: bad input


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"hidden_size": "drop"}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": -2}, "num_hidden_layers"),
        ({"vocab_size": True}, "vocab_size"),
        ({"hidden_size": 66}, "must divide hidden_size"),
        ({"num_key_value_heads": 8}, "more key-value heads"),
        ({"num_key_value_heads": 3}, "must divide query heads"),
        ({"model_type": "drop"}, "model_type"),
        ({"attention_bias": "yes"}, "true or false"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "layer_types"),
        ({"model_type": "gemma2", "layer_types": "full"}, "list"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "more experts"),
        (DEEPSEEK | {"num_key_value_heads": 2}, "latent attention"),
        ({"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 2,
          "mlp_only_layers": [9]}, "mlp_only_layers"),
    ],
)  # fmt: skip
def test_impossible_configurations_say_what_is_wrong(keys, named):
    with pytest.raises(InvalidInputError, match=named):
        model_shape(changed(LLAMA, **keys))


@pytest.mark.parametrize("content", [b"{not json", b"\xff\xfe\x00", b"", b"[1, 2]", b"null"])
def test_unreadable_files_are_refused(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="JSON"):
        model_shape(path)


def test_missing_files_and_unknown_names_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="readable file"):
        model_shape(tmp_path)
    with pytest.raises(InvalidInputError, match="readable file"):
        model_shape("no/such/config.json")
    with pytest.raises(UnknownNameError, match="llama-3-8b"):
        model_shape("llama3-8b")


# Tensor parallelism


def test_llama_3_70b_over_8_devices_by_hand():
    split = check_tensor_parallel(model_shape("llama-3-70b"), 8)
    layer = (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) // 8 + 2 * 8192
    assert split.num_parameters_per_device == 2 * (128256 // 8) * 8192 + 80 * layer + 8192
    assert split.kv_bytes_per_token_per_device() == 327_680 // 8
    assert split.kv_replication == 1


def test_kv_heads_are_replicated_when_devices_outnumber_them():
    split = check_tensor_parallel(model_shape("llama-3-70b"), 32)
    assert split.kv_replication == 4
    assert split.kv_bytes_per_token_per_device() == 327_680 // 8


def test_a_latent_is_held_by_every_device():
    shape = model_shape("deepseek-v3")
    assert [shape.kv_bytes_per_token_per_device("bf16", t) for t in (1, 2, 8)] == [70_272] * 3
    assert shape.check_tensor_parallel(8).kv_replication == 8


def test_tensor_parallel_splits_matrices_as_slices_of_the_network():
    # qwen2.5-7b over 4: q, k, v and gate, up by columns with their biases, o and down by rows, V padded
    shape = model_shape("qwen2.5-7b")
    d, f = 3584, 18944 // 4
    layer = d * (d + 2 * 512) // 4 + (d + 2 * 512) // 4 + d * d // 4 + 3 * d * f + 2 * d
    assert check_tensor_parallel(shape, 4).num_parameters_per_device == 2 * (152064 // 4) * d + 28 * layer + d


@pytest.mark.parametrize(("name", "degree"), [("gpt2", 5), ("llama-3-8b", 3), ("gpt2-xl", 2), ("qwen2.5-7b", 8)])
def test_a_degree_that_does_not_divide_lists_those_that_do(name, degree):
    with pytest.raises(InvalidInputError, match="allowed: degrees 1, "):
        model_shape(name).check_tensor_parallel(degree)


def test_a_degree_below_one_is_refused():
    for degree in (0, -1, 1.0):
        with pytest.raises(InvalidInputError, match="degree"):
            model_shape("gpt2").check_tensor_parallel(degree)


@given(st.sampled_from(model_shapes()), st.data())
def test_devices_together_hold_the_model_and_no_less(name, data):
    shape = model_shape(name)
    degree = data.draw(st.sampled_from(tensor_parallel_degrees(shape)))
    split = shape.check_tensor_parallel(degree)
    assert degree * split.num_parameters_per_device >= shape.num_parameters
    assert split.num_parameters_per_device <= shape.num_parameters
    assert degree * split.kv_bytes_per_token_per_device() == split.kv_replication * shape.kv_bytes_per_token()
    assert shape.weight_bytes_per_device("bf16", degree) == 2 * split.num_parameters_per_device


@pytest.mark.parametrize("name", model_shapes())
def test_one_device_holds_the_whole_model(name):
    shape = model_shape(name)
    split = shape.check_tensor_parallel(1)
    assert split.device_shape == shape
    assert split.decode_weight_bytes_per_device(3) == shape.decode_weight_bytes(3)
    assert split.kv_bytes_per_device(5000) == shape.kv_bytes(5000)


def test_layer_types_are_honoured_in_every_family():
    mixed = changed(LLAMA, layer_types=["sliding_attention", "full_attention"], sliding_window=9)
    assert model_shape(mixed).attention_windows == (9, None)
    with pytest.raises(InvalidInputError, match="sliding_window"):
        model_shape(changed(mixed, sliding_window="drop"))
    assert model_shape(changed(LLAMA, sliding_window=9)).attention_windows == (None, None)


def test_a_byte_order_mark_is_read_and_an_endless_name_is_refused(tmp_path):
    shape = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 10}  # fmt: skip
    path = tmp_path / "marked.json"
    path.write_text(json.dumps(shape), encoding="utf-8-sig")
    assert model_shape(path).num_heads == 2
    for name in ("a" * 5000, "a" * 5000 + ".json"):
        with pytest.raises(InvalidInputError):
            model_shape(name)
