"""trace-tensor bill: the answer first, the page beside it, JSON alone, every input one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from typer.testing import Result

from course_lib.journey import Journey
from course_lib.report import record, report_schema

Run = Callable[..., Result]
CHAR_LM = "course_lib.models.char_lm:load_char_lm"


def data(result: Result) -> dict:  # type: ignore[type-arg]
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def chain_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain alone: the what-ifs beside it are tested with the report, and 20 bills are made here."""
    for name in ("options", "switches"):
        monkeypatch.setattr(record, name, lambda journey: ())


def test_the_flagship_is_the_default_and_the_answer_comes_first(run: Run, tmp_path: Path) -> None:
    result = run("bill")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "llama-3-8b on NVIDIA H100 SXM"
    assert lines[2].split() == ["billed", "$17,228", "a", "month", "band", "$15,074", "to", "$23,688"]
    assert lines[3].split()[:2] == ["continuous", "$13,073"]
    assert [path.name for path in tmp_path.iterdir()] == ["trace-tensor-report.html"]
    assert lines[-1].endswith("trace-tensor-report.html")
    assert result.stderr == ""


@pytest.mark.usefixtures("chain_alone")
@pytest.mark.parametrize("model", [(), ("--model", "llama-3-70b", "--tensor-parallel", "8")])
def test_no_line_is_wider_than_100_columns_even_with_formulas_and_a_change(run: Run, model: tuple[str, ...]) -> None:
    result = run("bill", *model, "--no-report", "--formulas", "--sensitivity", "--change", "num_kv_heads=32")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_a_change_says_how_much_how_sure_and_why(run: Run) -> None:
    text = run("bill", "--no-report", "--change", "num_kv_heads=32").stdout
    assert "+$19,429 a month (+148.6%; +101% to +177% over the efficiencies)" in text
    assert "The cheaper option changes on 0% of the efficiencies tried" in text.replace("\n    ", " ")
    assert "KV bytes" in text


def test_json_is_alone_on_stdout_follows_its_schema_and_is_read_back(run: Run, tmp_path: Path) -> None:
    found = data(run("bill", "--json", "--change", "num_kv_heads=32"))
    jsonschema.validate(found, report_schema())
    assert list(tmp_path.iterdir()) == []  # a page only where --report asks for one
    assert found["diff"]["attribution"]["KV bytes"] == pytest.approx(18_112, abs=1)
    assert sum(found["diff"]["attribution"].values()) == pytest.approx(found["diff"]["continuous_usd_per_month"])
    again = Journey.from_dict({"format": "trace-a-tensor journey 1", "inputs": found["inputs"]})
    assert again.bill.billed_usd_per_month == found["bill"]["billed_usd_per_month"]
    assert sum(found["time_shares"].values()) == pytest.approx(1)


@pytest.mark.usefixtures("chain_alone")
def test_the_command_in_the_report_is_the_command_that_was_given(run: Run) -> None:
    words = ("bill", "--model", "gpt2", "--prompt-tokens", "500", "--output-tokens", "100", "--change", "num_layers=6",
             "--change", "tpot_seconds=0.02", "--disaggregated", "--json")  # fmt: skip
    said = data(run(*words))["command"]
    assert said.startswith("trace-tensor bill ")
    assert sorted(said.split()[2:]) == sorted(words[1:])


@pytest.mark.usefixtures("chain_alone")
@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("--rate", "120"), "arrival_requests_per_second", 120),
        (("--tpot-ms", "20"), "tpot_promise_seconds", 0.02),
        (("--ttft-ms", "200"), "ttft_promise_seconds", 0.2),
        (("--headroom", "0.5"), "headroom", 0.5),
        (("--efficiency-compute", "0.5"), "compute_efficiency", 0.5),
        (("--efficiency-bandwidth", "0.7"), "bandwidth_efficiency", 0.7),
        (("--fixed-ms", "1"), "step_fixed_seconds", 0.001),
        (("--prefix-hits", "0.5"), "prefill_tokens", 750),
        (("--max-batch", "16"), "batch", 16),
        (("--spares", "0"), "num_replicas_billed", 7),
        (("--hours", "100"), "hours", 100),
        (("--weights", "int8"), "weight_bytes", 8_030_261_248),
        (("--kv", "fp8"), "kv_bytes_per_token", 65_536),
        (("--usd-per-hour", "1.5"), "usd_per_hour", 1.5),
        (("--provider", "aws"), "usd_per_hour", 6.88),
        (("--tensor-parallel", "2"), "devices_per_replica", 2),
        (("--model", "llama-3-70b", "--tensor-parallel", "auto"), "devices_per_replica", 4),
        (("--kv-block-tokens", "512"), "held_tokens", 2048),
        (("--memory-fraction", "0.8", "--reserve-gb", "1"), "free_bytes", 0.8 * 80e9 - 16_060_522_496 - 1e9),
    ],
)
def test_each_option_reaches_its_link(run: Run, words: tuple[str, ...], field: str, value: float) -> None:
    links = {link["name"]: link["value"] for link in data(run("bill", "--json", *words))["links"]}
    assert links[field] == pytest.approx(value)


@pytest.mark.usefixtures("chain_alone")
def test_w8a8_and_the_switches_of_the_prefill_reach_the_dollars(run: Run) -> None:
    base, fp8, attention, apart = (
        data(run("bill", "--json", *words))["bill"]["continuous_usd_per_month"]
        for words in ((), ("--weights", "fp8", "--compute", "fp8"), ("--prefill-attention",), ("--disaggregated",))
    )
    assert round(100 * (fp8 / base - 1)) == -33
    assert attention > base
    assert apart != base


@pytest.mark.usefixtures("chain_alone")
def test_the_character_model_goes_from_its_tensors_to_dollars(run: Run) -> None:
    found = data(run("bill", "--json", "--model", CHAR_LM))
    links = {link["name"]: link for link in found["links"]}
    assert links["num_parameters"]["value"] == 465_600
    assert links["flops_per_token"]["value"] == 2 * 451_584
    assert links["flops_per_token"]["basis"] == "counted"
    assert any("at most 128 tokens" in warning for warning in found["warnings"])
    assert found["bill"]["billed_usd_per_month"] == pytest.approx(2 * 730 * 2.95)


def test_every_input_may_be_a_file_of_ones_own(run: Run, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    for kind, name in (("device", "d.toml"), ("price", "p.toml"), ("workload", "w.csv")):
        assert run("new", kind, "--out", name).exit_code == 0
    found = data(run("bill", "--json", "--model", "config.json", "--device", "d.toml", "--prices", "p.toml",
                     "--workload", "w.csv"))  # fmt: skip
    links = {link["name"]: link["value"] for link in found["links"]}
    # P = 2*V*D + L*(2*D*D + 2*D*128 + 3*D*F + 2*D) + D = 512,000 + 2*(131,072 + 65,536 + 393,216 + 512) + 256
    assert links["num_parameters"] == 1_692_928
    assert links["memory_bytes"] == 80e9
    assert links["usd_per_hour"] == 1.0
    assert links["prompt_tokens"] == 1500
    assert found["inputs"] is not None


def test_a_device_may_change_and_takes_its_own_price(run: Run) -> None:
    found = data(run("bill", "--json", "--change", "device=h200", "--change", "num_kv_heads=4"))
    assert {link["name"]: link["value"] for link in found["links"]}["usd_per_hour"] == 3.5
    assert {"device", "price", "KV bytes"} <= set(found["diff"]["attribution"])


def test_no_color_and_pipes_get_no_escape_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("course_lib.cli.output.sys.stdout.isatty", lambda: True, raising=False)
    assert "\x1b" not in run("bill", "--no-report").stdout
    assert "\x1b" not in run("--help").stdout
