"""Figures carry their words: alternative text, caption and the drawn numbers."""

from __future__ import annotations

import pytest

from course_lib.errors import InvalidInputError
from course_lib.plotting import COLORS, MARKERS, Figure, canvas


def drawn() -> Figure:
    with canvas(
        alt="A line from 1 to 4.", caption="Squares.", xlabel="side [m]", ylabel="area [m2]",
        table=(("side", "area"), ("1", "1"), ("2", "4")),
    ) as (axes, finish):  # fmt: skip
        axes.plot([1, 2], [1, 4], color=COLORS["memory"], marker=MARKERS["memory"])
        return finish()


def test_a_figure_is_html_with_alt_caption_and_table() -> None:
    html = drawn().to_html()
    assert html.startswith("<figure")
    assert 'alt="A line from 1 to 4."' in html
    assert "<figcaption" in html
    assert "Squares." in html
    assert "<td>4</td>" in html


def test_drawing_twice_gives_the_same_bytes() -> None:
    assert drawn().svg == drawn().svg


def test_words_are_escaped() -> None:
    html = Figure(svg="<svg/>", alt='a "quoted" <b>', caption="x < y").to_html()
    assert "<b>" not in html
    assert "x &lt; y" in html


@pytest.mark.parametrize("words", [{"alt": "", "caption": "c"}, {"alt": "a", "caption": " "}])
def test_a_figure_without_words_is_refused(words: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="alt text"):
        Figure(svg="<svg/>", **words)


def test_every_meaning_has_its_own_colour_and_marker() -> None:
    assert COLORS.keys() == MARKERS.keys()
    assert len(set(COLORS.values())) == len(COLORS)
    assert len(set(MARKERS.values())) == len(MARKERS)
