"""The capstone's notebook and starter files: structure, points, and a dry run of the command line."""

from grading.capstone.__main__ import main
from grading.capstone.judging import PARTS
from grading.cells import ROOT, STARTERS, lessons

(NOTEBOOK,) = lessons("capstone")


def test_every_part_has_one_check_with_its_points_and_words_are_worth_twenty():
    assert NOTEBOOK.points == {name: points for name, (points, _) in PARTS.items()}
    (words,) = [cell for cell in NOTEBOOK.of_role("markdown") if cell.key]
    assert words.points == 20
    assert sum(NOTEBOOK.points.values()) + words.points == 100


def test_the_notebook_has_a_puzzle_with_numbers_three_takeaways_and_sources():
    first, last = NOTEBOOK.cells[0].text, NOTEBOOK.cells[-1].text
    assert "?" in first
    assert "29,666" in first
    assert last.count("\n- ") == 3
    assert "Sources" in last


def test_prediction_stands_before_its_reveal_and_the_reveal_before_the_checks_that_read_it():
    order = [(cell.role, cell.key) for cell in NOTEBOOK.cells]
    predicted, revealed = (order.index((role, "capstone-effect")) for role in ("predict", "reveal"))
    assert predicted < revealed < order.index(("check", "capstone-gain"))


def test_what_learners_find_is_what_the_starter_folder_holds():
    for path in (STARTERS / "capstone").iterdir():
        if path.name != "README.md":  # the build writes the list of notebooks into it
            assert (ROOT / "capstone" / path.name).read_bytes() == path.read_bytes()


def test_the_command_line_judges_a_folder(excellent, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TRACE_A_TENSOR_HOME", str(tmp_path))
    assert main([str(excellent), "--held-out", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("66 of 80 points")  # nothing was committed here: gain and memo are lost
    assert sum("not-committed" in line for line in lines) == 2
