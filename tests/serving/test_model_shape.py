"""Model shapes: exact totals by three routes, bytes, FLOPs, edits."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.serving.attention_work import query_key_pairs
from course_lib.serving.experts import Experts, LatentAttention
from course_lib.serving.model_shape import ModelShape, model_shape, model_shapes, shape_table

# Totals as published (the parameter count a checkpoint's index states) and obtained a second time by building each
# architecture with transformers 5.24.0 on torch's meta device and summing numel. DeepSeek-V3 adds 58 * 256 router
# corrections, which that package keeps as buffers and the checkpoint keeps as tensors: 671,026,404,352 + 14,848.
PUBLISHED = {
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296, "opt-13b": 12_853_473_280,
    "llama-2-7b": 6_738_415_616, "llama-2-13b": 13_015_864_320, "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496, "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496, "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400, "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096, "mistral-7b-v0.3": 7_248_023_552,
    "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304, "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920, "qwen3-8b": 8_190_735_360, "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624, "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2b": 2_506_172_416, "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888, "gemma-2-9b": 9_241_705_984, "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952, "gemma-3-4b": 3_880_263_168, "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    "mixtral-8x7b": 46_702_792_704, "mixtral-8x22b": 140_620_634_112,
    "gpt-oss-20b": 20_914_757_184, "gpt-oss-120b": 116_829_156_672,
    "deepseek-v2-lite": 15_706_484_224, "deepseek-v2": 235_741_434_880, "deepseek-v3": 671_026_419_200,
}  # fmt: skip

sizes = st.integers(1, 12)


@st.composite
def shapes(draw):
    kv_heads, layers = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    experts = None
    if draw(st.booleans()):
        count = draw(st.integers(1, 6))
        experts = Experts(
            num_experts=count,
            num_experts_per_token=draw(st.integers(1, count)),
            expert_feed_forward_size=draw(sizes),
            num_shared_experts=draw(st.integers(0, 2)),
            dense_layers=tuple(range(draw(st.integers(0, layers)))),
        )
    return ModelShape(
        name="drawn", family="llama", num_layers=layers, model_size=draw(sizes), num_kv_heads=kv_heads,
        num_heads=kv_heads * draw(st.integers(1, 4)), head_size=draw(sizes), feed_forward_size=draw(sizes),
        vocab_size=draw(sizes), tied_embeddings=draw(st.booleans()), query_key_value_bias=draw(st.booleans()),
        attention_windows=tuple(draw(st.lists(st.none() | sizes, min_size=layers, max_size=layers))),
        num_positions=draw(st.integers(0, 5)), experts=experts,
    )  # fmt: skip


# Hand-worked


def test_every_catalogue_model_has_its_published_total():
    assert {name: model_shape(name).num_parameters for name in model_shapes()} == PUBLISHED


def test_llama_3_8b_by_hand():
    # 2*128256*4096 + 32*(2*4096*4096 + 2*4096*1024 + 3*4096*14336 + 2*4096) + 4096
    by_hand = 1_050_673_152 + 32 * (33_554_432 + 8_388_608 + 176_160_768 + 8_192) + 4_096
    assert model_shape("llama-3-8b").num_parameters == by_hand == 8_030_261_248


def test_opt_13b_has_two_extra_position_rows_and_biases_everywhere():
    # 50272*5120 + 2050*5120 + 40*(4*5120^2 + 4*5120 + 2*5120*20480 + 20480 + 5120 + 4*5120) + 2*5120
    layer = 4 * 5120**2 + 4 * 5120 + 2 * 5120 * 20480 + 20480 + 5120 + 4 * 5120
    assert model_shape("opt-13b").num_parameters == 50272 * 5120 + 2050 * 5120 + 40 * layer + 2 * 5120


def test_gpt2_adds_888576_parameters_to_the_plain_formula():
    # positions 1024*768, biases and norm biases 12*(4*768 + 5*768 + 2*768) + 768 less what the formula has
    shape = model_shape("gpt2")
    plain = 50257 * 768 + 12 * (4 * 768**2 + 2 * 768 * 3072 + 2 * 768) + 768
    assert shape.num_parameters - plain == 888_576


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama-3-8b", 131_072),  # 2*32*8*128*2
        ("llama-3-70b", 327_680),  # 2*80*8*128*2
        ("llama-2-13b", 819_200),  # 2*40*40*128*2
        ("opt-13b", 819_200),
        ("deepseek-v3", 70_272),  # 61*(512+64)*2
        ("deepseek-v2-lite", 31_104),  # 27*576*2
    ],
)
def test_kv_bytes_per_token_by_hand(name, bytes_per_token):
    assert model_shape(name).kv_bytes_per_token() == bytes_per_token
    assert model_shape(name).kv_bytes_per_token("fp8") * 2 == bytes_per_token


def test_windows_cap_the_cache():
    shape = model_shape("gpt-oss-20b")  # 12 layers see 128 tokens, 12 see all; 2*8*64*2 = 2048 B a token and layer
    assert shape.kv_bytes(1000) == 2048 * (12 * 128 + 12 * 1000)
    assert shape.kv_bytes(128) == 128 * shape.kv_bytes_per_token()
    gemma = model_shape("gemma-3-27b")  # layers 5, 11, ... 59 see all: 10 of 62
    assert sum(window is None for window in gemma.attention_windows) == 10
    assert gemma.attention_windows[:6] == (1024,) * 5 + (None,)
    assert model_shape("gemma-2-2b").attention_windows[:2] == (4096, None)
    assert set(model_shape("mistral-7b").attention_windows) == {4096}


@pytest.mark.parametrize(
    ("name", "billions", "with_table"),
    [
        ("mixtral-8x7b", 12.9, True),  # Mistral AI: 12.9 B
        ("qwen3-30b-a3b", 3.35, True),  # Qwen: 3.3 B
        ("qwen3-235b-a22b", 22.2, True),  # Qwen: 22 B
        ("deepseek-v3", 37.6, True),  # DeepSeek: 37 B
        ("deepseek-v2", 21.4, True),  # DeepSeek: 21 B
        ("gpt-oss-120b", 5.13, False),  # OpenAI model card: 5.13 B, input table not counted
        ("gpt-oss-20b", 3.61, False),  # OpenAI model card: 3.61 B
    ],
)
def test_active_parameters_are_the_published_ones(name, billions, with_table):
    shape = model_shape(name)
    active = shape.num_active_parameters if with_table else shape.num_active_matmul_parameters
    digits = len(str(billions).split(".")[1])
    assert round(active / 1e9, digits) == billions


def test_gpt_oss_120b_groups_are_those_of_its_model_card():
    groups = model_shape("gpt-oss-120b").parameter_groups  # printed in billions: 114.71, 0.96, 1.16, total 116.83
    feed_forward = groups.routers + groups.routed_experts + groups.shared_experts
    assert round(feed_forward / 1e9, 2) == 114.71
    assert round(groups.attention / 1e9, 2) == 0.96
    assert round((groups.token_embedding + groups.output_head) / 1e9, 2) == 1.16


@pytest.mark.parametrize(
    ("name", "with_tower"),
    [("gemma-3-4b", 4_300_079_472), ("gemma-3-12b", 12_187_325_040), ("gemma-3-27b", 27_432_406_640)],
)
def test_gemma_3_totals_are_the_published_ones_less_the_vision_tower(name, with_tower):
    d, f, layers, patches = 1152, 4304, 27, 4096
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    tower = 3 * 14 * 14 * d + d + patches * d + layers * layer + 2 * d
    shape = model_shape(name)
    projector = d * shape.model_size + d
    assert shape.num_parameters + tower + projector == with_tower


def test_matmul_parameters_leave_out_what_is_only_looked_up():
    llama, gpt2 = model_shape("llama-3-8b"), model_shape("gpt2")
    assert llama.num_lookup_parameters == 128256 * 4096
    assert llama.num_matmul_parameters == 7_504_924_672  # 15.01 GB in bf16
    assert llama.matmul_flops_per_token == 2 * 7_504_924_672
    assert gpt2.num_lookup_parameters == 1024 * 768  # the tied table multiplies once, as the head


def test_decode_reads_the_experts_that_work():
    mixtral = model_shape("mixtral-8x7b")
    expert = 3 * 4096 * 14336
    always = mixtral.num_matmul_parameters - 32 * 8 * expert
    assert mixtral.decode_weight_bytes(1) == 2 * (always + 32 * 2 * expert)
    assert mixtral.decode_weight_bytes(2) == 2 * (always + 32 * 3.5 * expert)  # 8*(1 - .75^2) = 3.5
    assert model_shape("llama-3-8b").decode_weight_bytes(64) == 2 * 7_504_924_672


def test_the_share_of_128_experts_top_4_by_batch():
    experts = Experts(num_experts=128, num_experts_per_token=4, expert_feed_forward_size=1)
    assert [round(experts.expected_distinct(b) / 1.28, 1) for b in (1, 32, 64)] == [3.1, 63.8, 86.9]


def test_flagship_edits_give_the_printed_totals():
    base = model_shape("llama-3-8b")
    edits = {
        8.131: {"feed_forward_size": 14592}, 8.281: {"model_size": 4224}, 8.299: {"num_kv_heads": 16},
        7.795: {"num_kv_heads": 1}, 8.903: {"num_layers": 36}, 9.081: {"vocab_size": 2 * 128256},
    }  # fmt: skip
    for billions, change in edits.items():
        assert round(base.with_changes(**change).num_parameters / 1e9, 3) == billions
    wider = base.with_changes(model_size=4224)
    assert wider.num_heads * wider.head_size == 4096


def test_latent_attention_flops_by_hand():
    shape = model_shape("deepseek-v3")
    assert shape.attention_flops(1, 100) == 61 * 100 * 2 * 128 * (512 + 64 + 512)
    assert shape.attention_flops(2, 2) == 61 * 3 * 2 * 128 * (192 + 128)
    rebuilt = 61 * 98 * 2 * 128 * 512 * 256  # 98 cached tokens: keys and values of 128 heads
    assert shape.attention_flops(2, 100) == 61 * (100 + 99) * 2 * 128 * 320 + rebuilt
    assert shape.attention_flops(2, 100, latent_form="absorbed") == 61 * 199 * 2 * 128 * 1088


# Invariants


@given(shapes(), st.integers(1, 64))
def test_a_larger_batch_reads_no_fewer_weights_and_never_more_than_all(shape, batch):
    read = shape.decode_weight_bytes(batch)
    slack = 1e-9 * read  # float64 rounding of (1 - k/E)^B
    assert read <= shape.decode_weight_bytes(batch + 1) + slack
    assert read <= 2 * shape.num_matmul_parameters + slack
    assert read >= 2 * shape.num_active_matmul_parameters - slack


@given(shapes())
def test_active_parameters_lie_between_none_and_all(shape):
    assert 0 < shape.num_active_parameters <= shape.num_parameters
    assert shape.parameter_groups.total == shape.num_parameters
    assert shape.num_lookup_parameters + shape.num_matmul_parameters == shape.num_parameters


@given(shapes(), st.integers(0, 40), st.integers(0, 40))
def test_kv_bytes_grow_and_never_exceed_the_uncapped_size(shape, short, more):
    assert shape.kv_bytes(short) <= shape.kv_bytes(short + more)
    assert shape.kv_bytes(short + more) - shape.kv_bytes(short) <= more * shape.kv_bytes_per_token()


@given(shapes(), st.integers(1, 8), st.integers(0, 8))
def test_with_changes_moves_only_what_is_named(shape, vocab, layers):
    edited = shape.with_changes(vocab_size=vocab)
    tables = (1 if shape.tied_embeddings else 2) * shape.model_size
    assert edited.num_parameters - shape.num_parameters == (vocab - shape.vocab_size) * tables
    longer = shape.with_changes(num_layers=shape.num_layers + layers)
    assert longer.attention_windows[: shape.num_layers] == shape.attention_windows
    assert shape.with_changes() == shape


# Oracles


@given(st.integers(0, 12), st.integers(0, 30), st.none() | st.integers(1, 20), st.booleans())
def test_pairs_equal_a_loop_over_queries(queries, cached, window, causal):
    context = queries + cached
    seen = [cached + i + 1 if causal else context for i in range(queries)]
    expected = sum(count if window is None else min(count, window) for count in seen)
    assert query_key_pairs(queries, context, window, causal=causal) == expected


@given(shapes(), st.integers(0, 6), st.integers(0, 6))
def test_a_prefill_costs_what_its_tokens_cost_one_by_one(shape, queries, cached):
    single = sum(shape.attention_flops(1, cached + i + 1) for i in range(queries))
    assert shape.attention_flops(queries, cached + queries) == single


def test_expected_distinct_experts_equal_an_enumeration_of_all_choices():
    from itertools import combinations, product

    choices = [set(c) for c in combinations(range(4), 2)]
    counts = [len(set.union(*picks)) for picks in product(choices, repeat=3)]
    experts = Experts(num_experts=4, num_experts_per_token=2, expert_feed_forward_size=1)
    assert experts.expected_distinct(3) == pytest.approx(sum(counts) / len(counts), rel=1e-12)  # float64 rounding


# Limits


def test_an_empty_context_costs_nothing():
    shape = model_shape("gemma-3-1b")
    assert shape.kv_bytes(0) == shape.attention_flops(0, 0) == shape.attention_flops(0, 50) == 0
    assert model_shape("deepseek-v3").attention_flops(0, 50) == 0


def test_four_bit_bytes_round_up():
    tiny = ModelShape(
        name="t", family="llama", num_layers=1, model_size=1, num_heads=1, num_kv_heads=1, head_size=1,
        feed_forward_size=1, vocab_size=1,
    )  # fmt: skip
    assert tiny.num_parameters == 12
    assert tiny.weight_bytes("int4") == 6
    assert tiny.weight_bytes("int4-g64") == 7  # 12 * 4.25 / 8 = 6.375


def test_a_huge_shape_stays_exact():
    shape = model_shape("llama-3.1-405b").with_changes(num_layers=10**4)
    assert shape.num_parameters == 2 * 128256 * 16384 + 16384 + 10**4 * (
        2 * 16384**2 + 2 * 16384 * 1024 + 3 * 16384 * 53248 + 2 * 16384
    )


@pytest.mark.parametrize(
    "change",
    [
        {"num_kv_heads": 64}, {"num_kv_heads": 5}, {"num_layers": 0}, {"model_size": -1}, {"head_size": 1.5},
        {"vocab_size": True}, {"num_kv_heads": "8"}, {"attention_windows": (None,)}, {"num_experts": 4},
        {"experts": Experts(num_experts=2, num_experts_per_token=1, expert_feed_forward_size=4, dense_layers=(32,))},
        {"latent_attention": LatentAttention(kv_rank=8, rope_head_size=4, nope_head_size=4, value_head_size=4)},
    ],
)  # fmt: skip
def test_impossible_edits_are_refused(change):
    with pytest.raises(InvalidInputError, match="given"):
        model_shape("llama-3-8b").with_changes(**change)


def test_an_edit_of_an_unknown_field_offers_near_ones():
    with pytest.raises(UnknownNameError, match="num_kv_heads"):
        model_shape("llama-3-8b").with_changes(num_kv_head=8)


def test_edits_without_effect_or_against_the_latent_are_refused():
    with pytest.raises(InvalidInputError, match="expert_feed_forward_size"):
        model_shape("mixtral-8x7b").with_changes(feed_forward_size=1)
    with pytest.raises(InvalidInputError, match="latent"):
        model_shape("deepseek-v3").with_changes(num_kv_heads=8)
    halved = model_shape("deepseek-v3").with_changes(num_heads=64)
    assert halved.num_kv_heads == 64
    assert halved.kv_bytes_per_token() == 70_272


def test_experts_can_be_edited_by_their_own_names():
    edited = model_shape("mixtral-8x7b").with_changes(num_experts_per_token=1)
    assert model_shape("mixtral-8x7b").num_active_parameters - edited.num_active_parameters == 32 * 3 * 4096 * 14336


def test_more_layers_need_the_places_of_scattered_dense_layers():
    base = model_shape("qwen3-30b-a3b")
    alternate = Experts(
        num_experts=128, num_experts_per_token=8, expert_feed_forward_size=768, dense_layers=tuple(range(0, 48, 2))
    )
    scattered = base.with_changes(experts=alternate)
    with pytest.raises(InvalidInputError, match="dense layers"):
        scattered.with_changes(num_layers=50)
    assert scattered.with_changes(num_layers=50, experts=alternate).num_expert_layers == 26
    assert model_shape("deepseek-v3").with_changes(num_layers=70).num_expert_layers == 67


@pytest.mark.parametrize(("queries", "context"), [(2, 1), (-1, 4), (1, -4)])
def test_impossible_contexts_are_refused(queries, context):
    with pytest.raises(InvalidInputError):
        model_shape("gpt2").attention_flops(queries, context)
    with pytest.raises(InvalidInputError):
        model_shape("gpt2").decode_weight_bytes(0)
    with pytest.raises(UnknownNameError):
        model_shape("deepseek-v3").attention_flops(1, 1, latent_form="absorb")


def test_each_catalogue_file_states_its_source_and_the_table_repeats_it():
    rows = {row.name: row for row in shape_table()}
    assert tuple(rows) == model_shapes()
    for name, row in rows.items():
        values = json.loads(files("course_lib.models").joinpath("shapes", f"{name}.json").read_text())
        assert row.source == values["_source"] != ""
        assert row.num_parameters == PUBLISHED[name]
