"""Bad input: one clear message on stderr, exit 2, nothing on stdout, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

BAD = [
    (("bill", "--model", "lama-3-8b"), ("unknown model", "lama-3-8b", "llama-3-8b")),
    (("bill", "--device", "h100"), ("unknown device", "h100-sxm", "h100-pcie")),
    (("bill", "--weights", "fp9"), ("fp9", "fp8")),
    (("bill", "--kv", "bf61"), ("bf61", "bf16")),
    (("bill", "--compute", "fp8", "--device", "a100-80gb-sxm"), ("fp8", "bf16")),
    (("bill", "--compute", "int4-g64"), ("only stores", "bf16")),
    (("bill", "--provider", "nobody"), ("provider", "nobody", "nebius")),
    (("bill", "--change", "num_heads=31"), ("heads", "31")),
    (("bill", "--change", "num_kv_heads=3"), ("divide", "1, 2, 4, 8, 16, 32")),
    (("bill", "--change", "num_kv_heads=64"), ("more key-value heads", "64")),
    (("bill", "--change", "kv_heads=4"), ("kv_heads", "num_kv_heads")),
    (("bill", "--change", "tpot_second=1"), ("tpot_second", "tpot_seconds")),
    (("bill", "--change", "num_kv_heads"), ("FIELD=VALUE", "num_kv_heads")),
    (("bill", "--change", "num_kv_heads=many"), ("num_kv_heads", "many")),
    (("bill", "--model", "llama-3-70b"), ("does not fit", "141 GB", "--tensor-parallel 4")),
    (("bill", "--tensor-parallel", "3"), ("3",)),
    (("bill", "--tensor-parallel", "several"), ("tensor_parallel", "several")),
    (("bill", "--rate", "0"), ("rate", "0")),
    (("bill", "--rate", "-5"), ("rate", "-5")),
    (("bill", "--rate", "nan"), ("rate", "nan")),
    (("bill", "--tpot-ms", "0"), ("tpot",)),
    (("bill", "--tpot-ms", "1"), ("promise", "1 ms")),
    (("bill", "--prompt-tokens", "0"), ("tokens", "0")),
    (("bill", "--prefix-hits", "1"), ("prefix", "1")),
    (("bill", "--headroom", "0"), ("headroom", "0")),
    (("bill", "--headroom", "1.5"), ("headroom", "1.5")),
    (("bill", "--usd-per-hour", "0"), ("price", "0")),
    (("bill", "--usd-per-hour", "1", "--provider", "aws"), ("one price",)),
    (("bill", "--workload", "w.csv", "--rate", "3"), ("workload file", "both")),
    (("bill", "--workload", "absent.csv"), ("absent.csv",)),
    (("bill", "--prices", "absent.toml"), ("absent.toml",)),
    (("bill", "--device", "absent.toml"), ("absent.toml",)),
    (("bill", "--model", "absent/config.json"), ("absent", "readable")),
    (("bill", "--model", "broken.json"), ("broken.json", "JSON")),
    (("bill", "--model", "list.json"), ("list.json", "object")),
    (("bill", "--model", "strange.json"), ("mamba",)),
    (("bill", "--model", "nowhere.module:build"), ("nowhere", "ModuleNotFoundError")),
    (("bill", "--model", "mine_bad:broken"), ("mine_bad:broken", "no weights today")),
    (("bill", "--model", "mine_bad:number"), ("nn.Module", "int")),
    (("bill", "--model", "mine_bad:buidl"), ("buidl", "build")),
    (("bill", "--model", "mine_bad:leave"), ("SystemExit",)),
    (("bill", "--model", "mine_bad:unfused"), ("KV cache", "--kv-elements")),
    (("trace", "--model", "mine_bad:odd"), ("nonzero",)),
    (("trace", "--model", "mixtral-8x7b"), ("routed experts",)),
    (("roofline", "--model", "mine_bad:odd"), ("nonzero",)),
    (("roofline", "--device", "tpu-v9"), ("unknown device", "tpu-v")),
    (("trace", "--model", "gpt2", "--tokens", "4", "--out", "absent/t.json"), ("absent/t.json",)),
    (("new", "device", "--out", "absent/d.toml"), ("absent/d.toml",)),
    (("bill", "--report", "absent/r.html"), ("absent/r.html",)),
    (("bill", "--speed", "9"), ("No such option", "--speed")),
    (("bill", "--batch-size"), ("No such option",)),
    (("trace", "--batch", "0"), ("a run needs a sequence; allowed: 1 or more; given: --batch 0.",)),
    (("roofline", "--tokens", "-3"), ("token of each sequence; allowed: 1 or more; given: --tokens -3.",)),
    (("trace", "--depth", "-1"), ("allowed: 0 or more; given: --depth -1.",)),
    (("new", "planet"), ("planet", "device")),
    (("ship",), ("No such command", "ship")),
]  # fmt: skip

MODULE = '''
import sys, torch
from torch import nn
class Odd(nn.Module):
    def forward(self, x):
        return torch.nonzero(x.to("meta"))
class Unfused(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)
    def forward(self, tokens):
        return self.head(self.table(tokens))
def odd(): return Odd()
def unfused(): return Unfused()
def build(): return nn.Linear(2, 2)
def broken(): raise ValueError("no weights today")
def number(): return 7
def leave(): sys.exit(3)
'''


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "broken.json").write_text("{not json")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "strange.json").write_text(json.dumps({"model_type": "mamba"}))
    (tmp_path / "mine_bad.py").write_text(MODULE)
    (tmp_path / "w.csv").write_text("arrival_at_seconds,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n")
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_said_on_stderr_with_exit_2(
    run: Run, files: list[str], tmp_path: Path, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    sys.modules.pop("mine_bad", None)
    result = run(*words)
    assert result.exit_code == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for part in said:
        assert part in result.stderr
    left = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")
    assert left == files


def test_a_page_that_cannot_be_written_leaves_the_old_one_and_prints_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.html").write_text("the old page")

    def full(self: Path, *_: object, **__: object) -> int:
        with self.open("w") as file:
            file.write("<!doctype")  # the disk fills up in the middle
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = run("bill", "--report", "r.html")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "No space left on device" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    assert (tmp_path / "r.html").read_text() == "the old page"


def test_the_console_script_exits_with_2_and_an_empty_stdout(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("trace-tensor")
    words = [script, "bill", "--model", "nope"]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("trace-tensor: unknown model; given: 'nope'.")
    assert list(tmp_path.iterdir()) == []


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['trace-tensor', 'bill', '--help']\n"
        "from course_lib.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = [m for m in ('torch', 'numpy', 'numba', 'matplotlib', 'pandas', 'jsonschema') if m in sys.modules]\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
