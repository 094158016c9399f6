"""The other commands: trace, roofline, new, doctor, help and version."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from typer.testing import Result

from course_lib.cli.new import Kind, template
from course_lib.hardware import device
from course_lib.lesson import environment
from course_lib.serving.model_shape import model_shape
from course_lib.trace import Trace

Run = Callable[..., Result]
SCHEMAS = Path(__file__).resolve().parents[2] / "course_lib/cli/schemas"


def data(result: Result, schema: str) -> dict:  # type: ignore[type-arg]
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    jsonschema.validate(found, json.loads((SCHEMAS / f"{schema}.json").read_text(encoding="utf-8")))
    return found  # type: ignore[no-any-return]


MODULE = '''
import torch
from torch import nn
print("this goes to stderr")
def build():
    return nn.Linear(64, 128), torch.zeros(32, 64)
def tokens():
    return nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
class Odd(nn.Module):
    def forward(self, x):
        return torch.ops.aten.nonzero(x.to("meta"))
def odd():
    return Odd()
def broken():
    raise ValueError("no weights today")
def number():
    return 7
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    name = f"mine_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name  # type: ignore[misc]
    sys.modules.pop(name, None)


def test_a_module_of_ones_own_is_traced_with_its_inputs(run: Run, mine: str, tmp_path: Path) -> None:
    found = data(run("trace", "--model", f"{mine}:build", "--json", "--out", "t.json"), "trace")
    # 2 * 32 * 64 * 128 forward, as much for the weight's gradient; the input needs none
    assert found["totals"]["forward"]["matmul_flops"] == found["totals"]["backward"]["matmul_flops"] == 524_288
    assert found["saved_bytes"] == 32 * 64 * 4
    assert Trace.from_json(tmp_path / "t.json").matmul_flops == found["totals"]["all"]["matmul_flops"]
    text = run("trace", "--model", f"{mine}:tokens", "--batch", "2", "--tokens", "3", "--by", "module").stdout
    assert "(2, 3)" in text.splitlines()[0]


def test_a_catalogue_model_is_traced_on_the_meta_device(run: Run) -> None:
    words = ("trace", "--model", "gpt2", "--tokens", "16", "--json", "--no-backward")
    found = data(run(*words), "trace")
    shape = model_shape("gpt2")
    assert found["parameter_bytes"] == 2 * shape.num_parameters
    assert found["totals"]["backward"]["flops"] == 0
    assert found["complete"]
    assert sum(row["flops"] for row in found["rows"]) == found["totals"]["all"]["flops"]
    by_module = data(run(*words, "--by", "module"), "trace")
    assert sum(row["flops"] for row in by_module["rows"]) == found["totals"]["all"]["flops"]


def test_the_fused_attention_keeps_no_square_matrix(run: Run) -> None:
    words = ("trace", "--model", "gpt2", "--tokens", "256", "--json")
    plain, flash = (data(run(*words, *more), "trace") for more in ((), ("--flash",)))
    assert flash["saved_bytes"] < plain["saved_bytes"]
    assert flash["totals"]["forward"]["matmul_flops"] == plain["totals"]["forward"]["matmul_flops"]


def test_a_prefill_is_bound_by_arithmetic_and_a_decode_step_by_memory(run: Run) -> None:
    found = data(run("roofline", "--model", "qwen2.5-0.5b", "--tokens", "512", "--batch", "4", "--json"), "roofline")
    prefill, decode = found["passes"]
    largest = {each["pass"]: each["rows"][0] for each in (prefill, decode)}
    assert largest["decode"]["bound"] == "memory"
    assert {row["bound"] for row in prefill["rows"]} == {"compute", "memory"}
    for each in (prefill, decode):
        assert sum(row["seconds_floor"] for row in each["rows"]) == pytest.approx(each["seconds_floor"])
        for row in each["rows"]:
            assert row["seconds_floor"] >= row["bytes_moved"] / found["memory_bytes_per_second"] * (1 - 1e-9)
    # a decode step reads at least the weights that multiply
    floor = 2 * model_shape("qwen2.5-0.5b").num_matmul_parameters / device("h100-sxm").memory_bytes_per_second
    assert decode["seconds_floor"] > 0.99 * floor
    text = run("roofline", "--model", "qwen2.5-0.5b", "--tokens", "64").stdout
    assert text.index("PREFILL") < text.index("DECODE")
    assert max(map(len, text.splitlines())) <= 100


def test_a_module_of_ones_own_has_a_roofline_of_its_forward_pass(run: Run, mine: str) -> None:
    found = data(run("roofline", "--model", f"{mine}:build", "--device", "t4", "--json"), "roofline")
    assert found["dtype"] == "fp16"
    assert [each["pass"] for each in found["passes"]] == ["forward"]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_template_is_commented_loads_and_replaces_nothing_unasked(run: Run, kind: Kind, tmp_path: Path) -> None:
    assert run("new", kind).stdout == template(kind)
    name = "mine.csv" if kind is Kind.WORKLOAD else "mine.toml"
    assert run("new", kind, "--out", name).exit_code == 0
    (tmp_path / name).write_text("my numbers")
    refused = run("new", kind, "--out", name)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (tmp_path / name).read_text() == "my numbers"
    assert run("new", kind, "--out", name, "--force").exit_code == 0
    assert (tmp_path / name).read_text() == template(kind)


def test_doctor_says_what_is_missing_and_exits_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data(run("doctor", "--json"), "doctor")["ready"]
    gone = environment.EnvironmentCheck(what="torch", found="not installed", state="missing", cure="pip install torch")
    monkeypatch.setattr(environment, "environment_checks", lambda: (gone,))
    result = run("doctor")
    assert result.exit_code == 1
    assert "1 to mend" in result.stdout
    assert "pip install torch" in result.stdout


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("trace-tensor 0.")
    for words in ((), ("bill",), ("trace",), ("roofline",), ("new",), ("doctor",)):
        result = run(*words, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.stdout
