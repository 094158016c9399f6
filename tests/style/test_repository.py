"""The repository keeps its own rules: one pin of torch, no private hosts, small files, no emoji."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_HOSTS = re.compile(r"https://download\.pytorch\.org/whl/\w+")


HEAVY = ("torch", "numba", "matplotlib", "pandas", "IPython")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tracked() -> list[Path]:
    """Files under version control, or every file where there is no git (an unpacked archive)."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = listing.stdout.decode().split("\0") if listing.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [p for p in ROOT.rglob("*") if ".venv" not in p.parts]
    return [path for path in paths if path.is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        if path.suffix in {".py", ".md", ".toml", ".json", ".csv", ".txt", ".lock", ".yml", ".ipynb", ""}:
            found.append((path, path.read_text(encoding="utf-8", errors="replace")))
    return found


def test_torch_is_pinned_once_and_the_same_everywhere() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    makefile = re.search(r"^TORCH\s*\?=\s*(\S+)", text("Makefile"), re.MULTILINE)
    binder = re.search(r"^(torch==[\d.]+)", text(".binder/requirements.txt"), re.MULTILINE)
    assert makefile
    assert binder
    assert [makefile[1]] == extras["cpu"] == extras["cuda"] == [binder[1]]


def test_no_resolver_meets_an_unpinned_torch() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    others = [r for name, rs in project["optional-dependencies"].items() if name not in ("cpu", "cuda") for r in rs]
    assert not [r for r in [*project["dependencies"], *others] if re.match(r"torch\b", r)]
    lock = text("requirements.lock")
    assert not re.search(r"^torch\b", lock, re.MULTILINE)


def test_no_index_but_the_public_one_of_torch_is_named() -> None:
    for path, content in texts():
        if path == Path(__file__):
            continue
        rest = PUBLIC_HOSTS.sub("", content)
        assert not re.search(r"(?:extra-)?index-url[= ]\s*https?://|find-links[= ]\s*[/h]", rest), path


def test_no_emoji_in_the_course() -> None:
    emoji = re.compile("[\U0001f300-\U0001faff\u2705\u274c\u26a0\ufe0f]")
    assert not [path for path, content in texts() if path.name != Path(__file__).name and emoji.search(content)]


def test_no_tracked_file_is_large() -> None:
    assert not [path for path in tracked() if path.stat().st_size > 1_500_000]


@pytest.mark.parametrize("module", ["course_lib", "course_lib.journey", "course_lib.trace", "course_lib.lesson"])
def test_importing_loads_no_heavy_package(module: str) -> None:
    code = f"import {module}, sys; print(*[m for m in {HEAVY} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
