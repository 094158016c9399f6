"""The course as a reader meets it: JupyterLab in a real browser, from the start page to a passed exercise.

No Chromium on this machine is a failure with the cure in its message, never a skip: a page that nobody
looked at is not tested.
"""

import re

import psutil
import pytest

from course_lib.journey import Journey
from course_lib.lesson import exercise, judge
from grading.cells import ROOT, SOURCES, read_lesson
from tests.browser import lab
from tests.browser.lab import BrowserMissingError, Notebook, browser_page, copy_course, lab_server

LESSON = "week4_serving/w4_5_dimension_to_bill.ipynb"
EXERCISE = "w4-5-invoice"
SIGNATURE = "def invoice(replicas, spares, devices, usd_per_hour, hours):"
WRONG = f"{SIGNATURE}\n    return (replicas + spares) * devices * usd_per_hour * hours"  # rents a part of a replica
SLIDER = "key/value heads"


@pytest.fixture
def no_process_left():
    """Whatever a test starts, it ends: server, kernels, browser, driver."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.usefixtures("no_process_left")
def test_a_reader_starts_opens_4_5_moves_a_slider_errs_reads_the_hint_and_passes(tmp_path):
    course, scratch = tmp_path / "course", tmp_path / "scratch"
    course.mkdir()
    scratch.mkdir()
    with lab_server(copy_course(course), scratch) as address, browser_page() as page:
        start = Notebook.open(page, address, "START_HERE.ipynb")
        the_start_page_says_ready_and_leads_to_every_lesson(start)

        start.front.get_by_role("link", name="4.5").last.click()
        lesson = Notebook(page=page)
        lesson.wait_for(LESSON)
        lesson.run_all()
        assert lesson.errors() == []
        no_dollar_amount_became_a_formula(lesson)
        the_slider_changes_the_invoice(lesson)
        a_wrong_answer_is_told_its_misconception(lesson)
        the_right_answer_passes(lesson)

        progress = (course / ".trace-a-tensor" / "progress.json").read_text()
        assert EXERCISE in progress, "what was passed is remembered, inside the learner's own course"


def the_start_page_says_ready_and_leads_to_every_lesson(start):
    start.run_all()
    assert start.errors() == []
    start.front.get_by_text("Ready. Python").wait_for()
    for path in sorted(ROOT.glob("week*/*.ipynb")):
        link = start.front.locator(f'table a[href*="{path.name}"]')
        link.wait_for()
        assert link.inner_text().strip()
    assert start.front.get_by_text(re.compile("^Begin with")).count() == 1


def no_dollar_amount_became_a_formula(lesson):
    """Between two amounts in dollars JupyterLab sees a formula, unless it is told not to."""
    lesson.front.locator(".jp-MarkdownOutput mjx-container").first.wait_for(state="attached")  # it has set formulas
    lesson.cell(f"{EXERCISE}-check")
    assert lesson.front.locator(".jp-Cell-outputArea mjx-container").count() == 0


def the_slider_changes_the_invoice(lesson):
    invoice = lesson.front.locator(".tt-invoice").last
    before = invoice.get_attribute("data-billed-usd")
    assert billed(invoice) == usd(num_kv_heads=32), "the page shows the library's number"

    row = lesson.front.locator(".tt-explorer .widget-inline-hbox").filter(has_text=SLIDER).filter(
        has=lesson.page.locator(".noUi-handle")
    )
    row.locator(".noUi-handle").press("ArrowLeft")  # 32 to 16
    lesson.page.wait_for_function(
        "old => ![null, old].includes([...document.querySelectorAll('.tt-invoice')].at(-1).dataset.billedUsd ?? null)",
        arg=before,
    )
    assert "16" in row.locator(".widget-readout").inner_text()
    assert billed(invoice) == usd(num_kv_heads=16) < usd(num_kv_heads=32)


def a_wrong_answer_is_told_its_misconception(lesson):
    verdict = judge(exercise(EXERCISE), defined(WRONG))
    assert not verdict.passed
    assert verdict.misconception is not None
    panel = answer(lesson, WRONG)
    panel.get_by_text("Not yet").wait_for()
    panel.get_by_text(verdict.message).wait_for()
    panel.get_by_text("Expected", exact=True).wait_for()


def the_right_answer_passes(lesson):
    source = read_lesson(SOURCES / f"{LESSON.removesuffix('.ipynb')}.py")
    solution, _ = source.exercise_cells(EXERCISE)
    panel = answer(lesson, solution.solved_text)
    panel.get_by_text("Passed").wait_for()
    assert panel.get_by_text("Not yet").count() == 0


def answer(lesson, text):
    """Type an answer, run its cell and its check; the check's output."""
    lesson.write(f"{EXERCISE}-exercise", text)
    lesson.run(f"{EXERCISE}-exercise")
    return lesson.run(f"{EXERCISE}-check")


def defined(text):
    space = {}
    exec(text, space)
    return space["invoice"]


def billed(invoice):
    return float(invoice.get_attribute("data-billed-usd"))


def usd(**shape):
    return round(Journey().with_shape(**shape).bill.billed_usd_per_month, 2)


def test_without_a_browser_the_failure_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "system_chromium", lambda: None)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(BrowserMissingError, match=r"apt-get install chromium.*playwright install"), browser_page():
        pass
