"""The start page: what it says of the machine, where its links lead, what it knows of the reader's progress."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from course_lib.journey import Journey
from course_lib.lesson import check, course_map, environment_report, progress_page
from course_lib.lesson.environment import TORCH, environment_checks, memory_bytes
from course_lib.lesson.pages import folded

ROOT = Path(__file__).resolve().parents[2]
START = (ROOT / "grading" / "staff" / "source" / "start" / "start_here.py").read_text()


def state_of(what):
    return next(found for found in environment_checks() if found.what == what)


def test_a_container_may_use_less_memory_than_the_machine_has(tmp_path):
    limit, none = tmp_path / "memory.max", tmp_path / "v1"
    limit.write_text("900000000\n")
    none.write_text("max\n")
    assert memory_bytes([limit, none, tmp_path / "absent"]) == 900_000_000
    assert memory_bytes([none]) == memory_bytes([]) > 1e8  # the machine's own


@pytest.mark.parametrize(("total", "state"), [(0.9e9, "missing"), (1e9, "tight"), (2e9, "ready"), (None, "optional")])
def test_memory_is_short_tight_or_enough(monkeypatch, total, state):
    monkeypatch.setattr("course_lib.lesson.environment.memory_bytes", lambda: total)
    assert state_of("Memory").state == state


def test_on_binder_the_reader_is_told_in_the_open_to_download(monkeypatch):
    monkeypatch.setenv("BINDER_SERVICE_HOST", "10.0.0.1")
    html = environment_report()._repr_html_()
    assert "Binder forgets you" in html.split("<details")[0]
    assert environment_report().text.startswith("Ready.")


def test_what_is_missing_has_a_command_to_copy_in_the_open(monkeypatch):
    real = metadata.version

    def without_torch(name):
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", without_torch)
    html = environment_report()._repr_html_().split("<details")[0]
    assert "1 to mend: torch." in html
    assert f"<code>%pip install {TORCH} --extra-index-url https://download.pytorch.org/whl/cpu</code>" in html


def test_a_course_without_its_exercises_is_to_be_mended(monkeypatch, tmp_path):
    (tmp_path / "w1_1_bad.py").write_text("")
    (tmp_path / "week").mkdir()
    (tmp_path / "week" / "w1_1_bad.py").write_text("EXERCISES = 3\n")
    monkeypatch.setenv("TRACE_A_TENSOR_CHECKS", str(tmp_path))
    found = state_of("Exercises")
    assert (found.state, bool(found.cure)) == ("missing", True)
    assert "<p>Exercises: " in environment_report()._repr_html_().split("<details")[0]


def test_the_map_says_where_to_begin_and_then_where_to_go_on(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "Begin with" in course_map()._repr_html_()
    check("w1-2-linear-flops", lambda b, i, o: 2 * b * i * o)
    html = course_map()._repr_html_()
    assert "Go on with" in html
    assert re.search(r"w1_2_trace_forward\.ipynb.*?2 of \d+ points", html, re.DOTALL)


def test_progress_is_folded_and_says_where_it_is_kept():
    html = progress_page()._repr_html_()
    assert "<summary>" in html
    assert "progress.json" in html
    assert folded("a <b>", "<i>x</i>", is_open=True) == "<details open><summary>a &lt;b&gt;</summary><i>x</i></details>"


def test_every_link_of_the_start_page_leads_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", START)
    assert len(links) >= 3
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_torch_that_is_advised_is_the_one_the_project_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cpu"] == [TORCH]
    assert f"%pip install {TORCH} " in START


def test_the_puzzle_of_the_start_page_is_what_the_library_computes():
    assert "The model grows by a tenth" in START
    assert "bill more than doubles" in " ".join(START.replace("#", "").split())
    base = Journey()
    heads = base.with_shape(num_kv_heads=32)
    assert base.shape.num_kv_heads == 8
    assert heads["num_parameters"] / base["num_parameters"] == pytest.approx(1.1, abs=0.005)  # "a tenth", to a percent
    assert heads.bill.billed_usd_per_month > 2 * base.bill.billed_usd_per_month
