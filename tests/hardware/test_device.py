import copy
import dataclasses
import inspect
import math
import pickle
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError, UnsupportedError
from course_lib.hardware import Device, device, device_template, devices
from course_lib.units import parse_quantity

EXACT = 1e-12  # printed decimals and recorded floats differ by rounding only


@pytest.mark.parametrize("name", devices())
def test_every_number_of_every_device_has_a_citation_whose_printed_text_is_that_number(name):
    record = device(name)
    numbers = record.numbers()
    assert set(record.citations) == set(numbers)
    for key, value in numbers.items():
        citation = record.citations[key]
        if key == "matmul_tile":
            rows, columns = (int(side) for side in citation.printed.split("x"))
            assert record.matmul_tile == (rows, columns)
        elif citation.printed:
            assert math.isclose(parse_quantity(citation.printed)[0], value, rel_tol=EXACT), (key, citation)
        else:
            assert citation.kind in ("derived", "assumed")
            assert citation.note, key


@pytest.mark.parametrize("name", devices())
def test_every_alternative_is_a_printed_number_that_differs_from_the_recorded_one(name):
    record = device(name)
    for key, others in record.alternatives.items():
        for other in others:
            ratio = parse_quantity(other.printed)[0] / record.numbers()[key]
            assert 0.8 < ratio < 1.2, (key, other)  # texts disagree by rounding and GiB, never by a factor


@pytest.mark.parametrize("name", devices())
def test_the_units_of_printed_texts_are_those_of_their_fields(name):
    units = {"memory_bytes": {"byte", ""}, "memory_bytes_per_second": {"byte/s", ""}, "tdp_watts": {"W"}}
    for key, citation in device(name).citations.items():
        unit = parse_quantity(citation.printed)[1] if citation.printed and key != "matmul_tile" else None
        if unit is not None and key in units:
            assert unit in units[key], (key, citation)
        if unit is not None and "peak" in key:
            assert unit in {"FLOP/s", "FLOP", ""}, (key, citation)  # vendors write TFLOPs for a rate


@pytest.mark.parametrize("name", devices())
def test_a_file_is_named_as_its_device_and_starts_with_a_comment(name):
    text = (Path(inspect.getfile(Device)).parent / "data" / f"{name}.toml").read_text(encoding="utf-8")
    assert device(name).name == name
    assert text.startswith("# ")


def test_the_catalogue_holds_the_promised_devices():
    promised = (
        "h100-sxm h100-pcie h200 b200 b300 a100-40gb-sxm a100-80gb-sxm l4 l40s a10g t4 v100-sxm mi300x "
        "tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu7x laptop-cpu xdna2-npu"
    )
    assert set(promised.split()) <= set(devices())


@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("h100-sxm", 989e12 / 3.35e12),  # 295.2
        ("h200", 989e12 / 4.8e12),  # 206.0
        ("a100-80gb-sxm", 312e12 / 2.039e12),  # 153.0
        ("a100-40gb-sxm", 312e12 / 1.555e12),  # 200.6
        ("tpu-v5p", 459e12 / 2.8e12),  # 163.9
        ("tpu-v5e", 197e12 / 8.1e11),  # 243.2
    ],
)
def test_ridge_points_by_hand(name, ridge):
    assert device(name).ridge_point("bf16") == pytest.approx(ridge, rel=EXACT)


def test_published_ridge_points_to_their_digits():
    rounded = {name: round(device(name).ridge_point("bf16"), 1) for name in devices() if "bf16" in device(name).formats}
    assert rounded["h100-sxm"] == 295.2
    assert rounded["h200"] == 206.0
    assert rounded["a100-80gb-sxm"] == 153.0
    assert round(rounded["a100-40gb-sxm"]) == 201
    assert round(rounded["tpu-v5p"]) == 164
    assert round(rounded["tpu-v5e"]) == 243


def test_the_ridge_point_of_v6e_depends_on_the_text_believed():
    record = device("tpu-v6e")
    book = record.with_alternative("peak_flops_per_second.bf16")
    page = record.with_alternative("memory_bytes_per_second")
    assert book.ridge_point("bf16") == pytest.approx(575.0, rel=EXACT)  # 9.2e14 / 1.6e12
    assert record.ridge_point("bf16") == pytest.approx(573.75, rel=EXACT)  # 918e12 / 1.6e12
    assert page.ridge_point("bf16") == pytest.approx(918e12 / 1.638e12, rel=EXACT)  # 560.4
    assert book.citations["peak_flops_per_second.bf16"].source != record.citations["peak_flops_per_second.bf16"].source


def test_dense_and_sparse_peaks_stand_apart():
    record = device("h100-sxm")
    assert record.peak("bf16") == 989e12
    assert record.sparse_peak_flops_per_second["bf16"] == 1979e12
    for name in devices():
        for dtype, sparse in device(name).sparse_peak_flops_per_second.items():
            assert sparse / device(name).peak(dtype) == pytest.approx(2, rel=2e-3)  # 1979 / 989 is 2.001


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("a100-80gb-sxm", "fp8"), ("t4", "bf16"), ("h100-sxm", "fp4"), ("v100-sxm", "int8"), ("mi300x", "nvfp4")],
)
def test_a_format_that_the_hardware_lacks_raises_and_lists_what_it_has(name, dtype):
    with pytest.raises(UnsupportedError, match=device(name).formats[0]):
        device(name).peak(dtype)


def test_storage_names_reach_the_unit_that_multiplies_them_and_weight_only_formats_do_not():
    assert device("h100-sxm").peak("fp8_e5m2") == device("h100-sxm").peak("fp8")
    assert device("b200").peak("nvfp4") == device("b200").peak("mxfp4") == 9000e12
    with pytest.raises(UnsupportedError, match="only stores"):
        device("h100-sxm").peak("int4-g64")
    with pytest.raises(UnknownNameError, match="bf16"):
        device("h100-sxm").peak("bf61")


def test_an_unknown_device_offers_near_matches():
    with pytest.raises(UnknownNameError, match="'h100-sxm'"):
        device("h100")
    with pytest.raises(UnknownNameError, match="toml"):
        device("")


def test_a_new_device_needs_no_code(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(device_template().replace('"my-device"', '"mine"'), encoding="utf-8")
    record = device(path)
    assert isinstance(record, Device)
    assert record.name == "mine"
    assert record.ridge_point("bf16") == 200.0  # 400e12 / 2e12
    assert device(str(path)) == record
    assert tomllib.loads(device_template())["kind"] == "gpu"


def test_every_optional_table_of_the_template_works_once_uncommented(tmp_path):
    lines = device_template().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("# [sparse_peak"))
    opened = [line[2:] if line.startswith("# ") and i >= start else line for i, line in enumerate(lines)]
    prose = ("Optional", "[link_latency_seconds]  ", "matmul_tile has")
    path = tmp_path / "full.toml"
    path.write_text("\n".join(line for line in opened if not line.startswith(prose)), encoding="utf-8")
    record = device(path)
    assert record.sparse_peak_flops_per_second["bf16"] == 800e12
    assert record.link_bytes_per_second == 200e9
    assert record.on_chip[0].bytes == 50_000_000


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("value = 2e12", "value = -2e12", InvalidInputError, "memory_bytes_per_second .* positive"),
        ("value = 2e12", "value = 0", InvalidInputError, "positive"),
        ("value = 2e12", "value = inf", InvalidInputError, "positive"),
        ("value = 2e12", "value = true", InvalidInputError, "positive"),
        ("value = 2e12", 'value = "2 TB/s"', InvalidInputError, "positive number"),
        ("value = 2e12", "value = 3e12", InvalidInputError, "differs from its printed text"),
        ('printed = "2 TB/s"\nsource = "sheet"', 'printed = "2 TB/s"', InvalidInputError, "has no source"),
        ('printed = "2 TB/s"\nsource = "sheet"', 'printed = "2 TB/s"\nsource = "sheat"', UnknownNameError, "sheet"),
        ('printed = "2 TB/s"', 'printed = "two"', InvalidInputError, "quantity"),
        ("[memory_bytes]", "[memory_byte]", UnknownNameError, "memory_bytes"),
        ('kind = "gpu" ', 'kind = "gqu" ', InvalidInputError, "kind"),
        ("[peak_flops_per_second.bf16]", "[peak_flops_per_second.bf17]", UnknownNameError, "bf16"),
        ('name = "my-device"', "", InvalidInputError, "needs name"),
        ('name = "my-device"', "name = 3", InvalidInputError, "text in quotes"),
        ("value = 2e12", "valu = 2e12", InvalidInputError, "table with value"),
        ("value = 2e12", 'value = 2e12\nnoet = "x"', UnknownNameError, "note"),
        ("value = 80_000_000_000 ", "value = 80.5 ", InvalidInputError, "whole number"),
        ("[memory_bytes]", "[memory_bytes", InvalidInputError, "not valid TOML"),
    ],
)
def test_a_bad_file_is_told_which_key_is_wrong(tmp_path, old, new, error, words):
    assert old in device_template()
    path = tmp_path / "bad.toml"
    path.write_text(device_template().replace(old, new, 1), encoding="utf-8")
    with pytest.raises(error, match=words):
        device(path)


def test_an_unreadable_file_is_a_clear_error(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        device(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InvalidInputError, match="cannot be read"):
        device(tmp_path / "latin.toml")


def test_a_number_without_citation_is_refused_in_code_too():
    source = device("t4")
    with pytest.raises(InvalidInputError, match="names its source"):
        Device(
            name="x", title="x", vendor="x", kind="gpu", peak_flops_per_second={"fp16": 1e12},
            memory_bytes=1, memory_bytes_per_second=1.0, citations={"memory_bytes": source.citations["memory_bytes"]},
        )  # fmt: skip


def test_records_are_frozen_to_the_bottom():
    record = device("t4")
    with pytest.raises(TypeError):
        record.peak_flops_per_second["bf16"] = 1.0  # type: ignore[index]
    with pytest.raises(AttributeError):
        record.memory_bytes = 1  # type: ignore[misc]


def test_records_hash_copy_pickle_and_become_dictionaries():
    record = device("h100-sxm")
    assert hash(record) == hash(device("h100-sxm"))
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
    assert dataclasses.asdict(record)["peak_flops_per_second"]["bf16"] == 989e12


def test_an_absent_alternative_is_named():
    with pytest.raises(UnknownNameError, match="memory_bytes"):
        device("h100-sxm").with_alternative("memory_byte")


@given(st.sampled_from(devices()))
def test_narrower_formats_are_never_slower_on_gpus_except_where_recorded(name):
    record = device(name)
    if {"bf16", "fp8"} <= set(record.formats):
        assert record.peak("fp8") >= record.peak("bf16")
    if {"fp32", "fp16"} <= set(record.formats):
        assert record.peak("fp16") > record.peak("fp32")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 10_000], ids=["nesting", "digits"])
def test_a_file_that_breaks_the_parser_is_refused_as_not_toml(tmp_path, text):
    path = tmp_path / "bomb.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="TOML"):
        device(path)


def test_a_byte_order_mark_is_no_reason_to_refuse_a_file(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_text(device_template(), encoding="utf-8-sig")
    device(path)


def test_a_path_with_a_zero_byte_is_refused():
    with pytest.raises(InvalidInputError):
        device("a\0.toml")
