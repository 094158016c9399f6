"""The README is held to the library: its table is computed again and its commands are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_lib.cli.app import app
from course_lib.journey import Journey

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MARK = "<!-- flagship table: computed by tests/docs/test_readme.py -->"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("trace-tensor ")]


def flagship_rows() -> list[str]:
    """The rows of the table as the library computes them."""
    base = Journey(model="llama-3-8b", device="h100-sxm")
    fast = base.with_changes(tpot_seconds=0.010)
    pairs = (
        ("feed-forward 14,336 to 14,592", base.with_shape(feed_forward_size=14_592), base),
        ("key/value heads 8 to 32", base.with_shape(num_kv_heads=32), base),
        ("weights to INT4", base.with_changes(weight_dtype="int4-g64"), base),
        ("the same INT4, under a 10 ms promise", fast.with_changes(weight_dtype="int4-g64"), fast),
    )
    kib = base["kv_bytes_per_token"] / 1024
    size, usd = base["num_parameters"] / 1e9, base.bill.continuous_usd_per_month
    first = f"| nothing | {size:.2f} B | {kib:.0f} KiB | {usd:,.0f} |"
    return [first, *(_row(words, after, before) for words, after, before in pairs)]


def _row(words: str, after: Journey, before: Journey) -> str:
    parameters = after["num_parameters"] / before["num_parameters"] - 1
    kv = after["kv_bytes_per_token"] / before["kv_bytes_per_token"]
    usd = after.bill.continuous_usd_per_month / before.bill.continuous_usd_per_month - 1
    digits = 1 if parameters < 0.05 else 0
    size = f"{100 * parameters:+.{digits}f} %" if parameters else "the same"
    return f"| {words} | {size} | {'the same' if kv == 1 else f'{kv:g} times'} | {100 * usd:+.1f} % |"


def test_the_flagship_table_is_what_the_library_computes() -> None:
    table = README.split(MARK)[1].strip().split("\n\n")[0].splitlines()
    assert [row.replace("**", "") for row in table[2:]] == flagship_rows()


def test_the_sentence_above_the_table_states_its_inputs() -> None:
    journey = Journey()
    load = journey.workload
    said = README.split(MARK)[0].rsplit("\n\n", 2)[1].replace("\n", " ")
    for part in (
        f"${journey['usd_per_hour']:.2f} an hour", f"{load.arrival_requests_per_second} requests a second",
        f"{load.mean_prompt_tokens:,.0f} tokens in", f"{load.mean_output_tokens:.0f} out",
        f"{1e3 * (journey.slo.tpot_seconds or 0):.0f} ms",
    ):  # fmt: skip
        assert part in said


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the README's commands name."""
    (tmp_path / "config.json").write_text((ROOT / "course_lib/models/shapes/mistral-7b.json").read_text())
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(
        "import torch\n\ndef build():\n    return torch.nn.Linear(8, 4), torch.zeros(2, 8)\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_shows_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} == {"bill", "trace", "roofline", "new", "doctor"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command: str, desk: Path) -> None:
    words = shlex.split(command, comments=True)
    if "mypackage.model:build" in words:
        assert (desk / "mypackage/model.py").exists()
    target = None
    if ">" in words:
        target, words = words[words.index(">") + 1], words[: words.index(">")]
    result = CliRunner().invoke(app, words[1:], prog_name="trace-tensor")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) > 3
    if target is not None:
        assert target.endswith(".toml")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert code
    exec(compile(code[1], "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "billed" in said
    assert "KV bytes" in said
    assert "Diff(" not in said


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_every_picture_of_the_readme_exists_and_says_what_it_shows() -> None:
    pictures = re.findall(r'<img src="([^"]+)" width="\d+" alt="([^"]+)">', README)
    assert len(pictures) == README.count("<img ")
    for path, alt in pictures:
        assert (ROOT / path).is_file(), path
        assert len(alt.split()) > 8


def test_the_readme_names_every_lesson_that_is_written() -> None:
    named = set(re.findall(r"\]\((week\d_\w+/w\w+\.ipynb)\)", README))
    assert named == {path.relative_to(ROOT).as_posix() for path in ROOT.glob("week*/w*.ipynb")}
