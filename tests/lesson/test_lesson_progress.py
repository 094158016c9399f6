"""The progress file survives crashes, bad content and bad folders."""

import json
import os
import subprocess
import sys

import pytest

from course_lib.lesson import check, course_map, environment_report, predict, progress_page, reveal
from course_lib.lesson.environment import environment_checks
from course_lib.lesson.pages import calibration
from course_lib.lesson.progress import ProgressStore, course_root, progress_path, progress_store


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"predictions": 3}', b'{"checks": {"a": 1}}', b"null", b"[" * 100_000],
)
def test_an_unreadable_file_is_kept_aside_and_work_goes_on(home, content):
    home.mkdir()
    (home / "progress.json").write_bytes(content)
    notice = predict("w9-9-n", 10)
    assert "progress.unreadable-1.json" in str(notice)
    assert (home / "progress.unreadable-1.json").read_bytes() == content
    assert repr(reveal("w9-9-n", 10)) == "1.0"


def test_two_unreadable_files_are_both_kept(home):
    for _ in range(2):
        home.mkdir(exist_ok=True)
        (home / "progress.json").write_text("{")
        predict("w9-9-n", 1)
    assert sorted(path.name for path in home.glob("progress.unreadable-*")) == [
        "progress.unreadable-1.json", "progress.unreadable-2.json",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_means_memory_and_a_note(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRACE_A_TENSOR_HOME", str(tmp_path / "file"))
    assert "in memory only" in str(predict("w9-9-n", 10))
    assert repr(reveal("w9-9-n", 10)) == "1.0"
    assert "in memory only" in str(check("w1-2-linear-flops", lambda *_: 0))


def test_a_write_that_breaks_off_leaves_the_old_file(home, monkeypatch):
    predict("w9-9-n", 10)
    before = progress_path().read_bytes()

    def breaks(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", breaks)
    predict("w9-9-n", 20)
    assert progress_path().read_bytes() == before


def test_nothing_but_the_file_is_left_behind(home):
    predict("w9-9-n", 10)
    assert [path.name for path in home.iterdir()] == ["progress.json"]
    json.loads(progress_path().read_text())


def test_unknown_fields_of_a_later_version_are_kept(home):
    home.mkdir()
    (home / "progress.json").write_text(json.dumps({"version": 2, "new": 1, "predictions": {}, "checks": {}}))
    predict("w9-9-n", 10)
    assert json.loads(progress_path().read_text())["new"] == 1


def test_progress_is_kept_at_the_root_of_the_course(monkeypatch, tmp_path):
    monkeypatch.delenv("TRACE_A_TENSOR_HOME")
    (tmp_path / "grading" / "checks").mkdir(parents=True)
    (tmp_path / "week1_backprop").mkdir()
    monkeypatch.chdir(tmp_path / "week1_backprop")
    assert course_root() == tmp_path
    assert progress_path() == tmp_path / ".trace-a-tensor" / "progress.json"


def test_progress_is_kept_here_where_there_is_no_course(monkeypatch, tmp_path):
    monkeypatch.delenv("TRACE_A_TENSOR_HOME")
    monkeypatch.chdir(tmp_path)
    assert progress_path() == tmp_path / ".trace-a-tensor" / "progress.json"


def test_the_page_counts_points_and_calibration():
    predict("w9-9-a", 20, unit="byte", low=5, high=30)
    predict("w9-9-b", 10, low=5, high=20)
    predict("w9-9-c", 1)
    reveal("w9-9-a", 10)  # factor 2, held
    reveal("w9-9-b", 40)  # factor 4, missed
    check("w1-2-linear-flops", lambda b, i, o: 2 * b * i * o)
    page = progress_page()
    assert page.text.startswith("2 of ")
    assert "2 predictions revealed, median factor 4; 1 of 2 intervals held the truth" in page.text
    assert "not revealed" in page._repr_html_()
    assert "<th scope=" in page._repr_html_()


def test_the_page_bears_entries_that_were_meddled_with(home):
    home.mkdir()
    predictions = {"<b>": {"value": "x"}, "c": {"value": 1, "measured": 0}}
    entries = {"predictions": predictions, "checks": {"w1-2-linear-flops": {"points": "9"}}}
    (home / "progress.json").write_text(json.dumps(entries))
    html = progress_page()._repr_html_()
    assert "<b>" not in html
    assert progress_store().notes == []


def test_calibration_of_nothing_is_a_sentence():
    assert calibration({}) == "No prediction has been revealed yet."
    assert calibration({"a": {"value": 0, "measured": 5}}) == "1 predictions revealed."


def test_the_map_links_every_notebook_that_exists(monkeypatch, tmp_path):
    (tmp_path / "grading" / "checks").mkdir(parents=True)
    folder = tmp_path / "week2_hardware"
    folder.mkdir()
    (folder / "w2_2_x.ipynb").write_text(json.dumps({"cells": [{"source": ["# 2.2 A <title>\n", "text"]}]}))
    (folder / "w2_3_broken.ipynb").write_text("{")
    monkeypatch.chdir(tmp_path)
    html = course_map()._repr_html_()
    assert '<a href="week2_hardware/w2_2_x.ipynb">2.2 A &lt;title&gt;</a>' in html
    assert "w2_3_broken" in html


def test_the_environment_report_has_a_cure_for_whatever_is_missing(monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = {check.what: check for check in environment_checks()}
    assert all(found[what].cure for what in ("numpy", "torch", "numba", "widgets"))
    assert (found["torch"].state, found["numba"].state) == ("missing", "optional")
    assert "to mend" in environment_report().text


def test_the_environment_of_this_test_is_ready():
    assert environment_report().text.startswith("Ready.")
    assert "<table" in environment_report()._repr_html_()


def test_a_store_in_memory_forgets_no_entry():
    store = ProgressStore(None)
    store.update("checks", "a", lambda old: {**old, "n": 1})
    store.update("checks", "b", lambda old: {**old, "n": 2})
    assert store.entry("checks", "a") == {"n": 1}


WRITER = """
import sys
from course_lib.lesson import predict
for number in range(25):
    predict(f"w1-{sys.argv[1]}-{number}", 3)
"""


def test_two_kernels_that_write_at_once_lose_nothing_of_each_other(home):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(progress_store().load()["predictions"]) == 50
    assert [path.name for path in home.iterdir()] == ["progress.json"]


def test_a_lock_left_by_a_kernel_that_died_is_waited_for_once_and_removed(home):
    home.mkdir()
    (home / "progress.lock").touch()
    assert predict("w1-1-flops", 3).word == "Committed"
    assert [path.name for path in home.iterdir()] == ["progress.json"]
