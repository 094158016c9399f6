"""Text, page and data are three prints of the same links; none of them computes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import date
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from typer.main import get_command

from course_lib.cli.app import app
from course_lib.journey import LINKS, Journey, format_link
from course_lib.models.char_lm import CharLM
from course_lib.report import (
    Option,
    Report,
    cross_checks,
    html_report,
    journey_report,
    options,
    record,
    report_data,
    report_schema,
    switches,
    text_report,
)
from course_lib.report.limits import LIMITS
from course_lib.report.record import STAGES
from course_lib.serving.workload import Workload

BASE = Journey(as_of=date(2026, 1, 1))
SHOWN = [rule.name for rule in LINKS if rule.shown and rule.name != "ttft_promise_seconds"]
ZERO_ON_ONE_DEVICE = "all_reduce_seconds"


def altered(name: str) -> Journey:
    """One link a tenth larger, whatever it is made of."""
    rule = next(rule for rule in LINKS if rule.name == name)

    def larger(*values: Any) -> Any:
        value = rule.function(*values)
        if name == ZERO_ON_ONE_DEVICE:
            return value + 1e-3
        if isinstance(value, int):
            return value + 1 if value < 1000 else value * 11 // 10
        return value * 1.1

    names = ", ".join(rule.needs)
    if name in ("compute_efficiency", "bandwidth_efficiency", "prefill_time_fraction", "headroom"):
        factor = 1.02
        return BASE.with_link(name, eval(f"lambda {names}: f({names}) * {factor}", {"f": rule.function}))
    return BASE.with_link(name, eval(f"lambda {names}: f({names})", {"f": larger}))


class Page(HTMLParser):
    """Cells of the link tables, headings, images, and everything that could ask a server for something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, list[str]] = {}
        self.headings: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.outside: list[str] = []
        self.tables = self.captions = self.scripts = 0
        self._link = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._link = found.get("data-link") or ("" if tag == "tr" else self._link)
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []
        self.images += [found] if tag == "img" else []
        self.tables += tag == "table"
        self.captions += tag == "caption"
        self.scripts += tag in ("script", "link", "iframe", "object")
        for name in ("src", "href", "srcset", "action"):
            target = found.get(name) or ""
            if target and not target.startswith(("#", "data:")):
                self.outside.append(target)

    def handle_data(self, data: str) -> None:
        if self._link and data.strip():
            self.links.setdefault(self._link, []).append(data.strip())


@dataclass(frozen=True)
class Prints:
    """A report and its prints, made once for all tests that only read them."""

    report: Report
    text: str
    html: str
    data: dict[str, Any]


def prints(report: Report) -> Prints:
    return Prints(report, text_report(report), html_report(report), report_data(report))


@pytest.fixture(scope="module")
def whole() -> Prints:
    """The changed flagship with everything that a report has."""
    return prints(journey_report(BASE.with_shape(num_kv_heads=32), before=BASE, change="num_kv_heads=32"))


@pytest.fixture
def chain_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain alone: what-ifs are tested apart, and 50 pages are made here."""
    for name in ("options", "switches"):
        monkeypatch.setattr(record, name, lambda journey: ())


@pytest.fixture(scope="module")
def plain() -> Prints:
    """The flagship, its chain alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("options", "switches"):
            patch.setattr(record, name, lambda journey: ())
        return prints(journey_report(BASE))


@pytest.mark.usefixtures("chain_alone")
@pytest.mark.parametrize("name", SHOWN)
def test_altering_any_link_changes_text_page_and_data_alike(name: str, plain: Prints) -> None:
    before, after = plain.report.link(name), prints(journey_report(altered(name)))
    link = after.report.link(name)
    assert link is not None
    assert before is not None
    assert link.value != before.value
    row = next(line for line in after.text.splitlines() if line[4:].startswith(f"{link.title}  "))
    assert format_link(link) in row
    assert Page(after.html).links[name][1] == format_link(link)
    assert {each["name"]: each["value"] for each in after.data["links"]}[name] == link.value
    if format_link(link) != format_link(before):
        assert after.text != plain.text
        assert after.html != plain.html


@pytest.mark.usefixtures("chain_alone")
@pytest.mark.parametrize("name", ["flops_per_token", "kv_bytes_per_token", "usd_per_hour", "step_fixed_seconds"])
def test_a_link_upstream_moves_the_dollars_of_every_print(name: str) -> None:
    report = journey_report(altered(name))
    usd = f"${report.journey.bill.continuous_usd_per_month:,.0f}"
    assert usd != "$13,073"
    assert usd in text_report(report).split("\n\n")[1]
    assert usd in html_report(report).split("</header>")[0]
    assert report_data(report)["bill"]["continuous_usd_per_month"] == report.journey.bill.continuous_usd_per_month


def test_the_page_is_self_contained_and_its_figures_have_words(whole: Prints) -> None:
    page = Page(whole.html)
    assert page.outside == []
    assert page.scripts == 0
    assert page.headings[0] == "h1"
    assert page.headings.count("h1") == 1
    levels = [int(tag[1]) for tag in page.headings]
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert len(page.images) == 7  # strip, waterfall, time, two staircases, options, tornado
    assert all(len(image["alt"] or "") > 40 for image in page.images)
    assert page.tables >= 15
    assert page.captions == page.tables - len(page.images)  # the table of a figure has the figure's caption


def test_every_link_stands_on_the_page_once_with_its_basis_and_its_citation(plain: Prints) -> None:
    report, html = plain.report, plain.html
    page = Page(html)
    assert list(page.links) == [link.name for link in BASE.links]
    assert html.count("data-link=") == len(BASE.links) == sum(len(links) for _, links in report.stages())
    for link in BASE.links:
        assert page.links[link.name][2] == link.basis
        assert link.source in html
    for limit in LIMITS:
        assert limit.what in html
    for name in ("memory_bytes", "memory_bytes_per_second", "peak_flops_per_second.bf16", "tdp_watts"):
        cited = BASE.machine.citations[name]
        assert f"<td>{cited.printed}</td><td>{cited.source}</td>" in html


def test_the_stages_hold_every_rule_once() -> None:
    assert [rule.name for _, room in STAGES for rule in room.LINKS] == [rule.name for rule in LINKS]


@pytest.mark.usefixtures("chain_alone")
def test_words_of_the_user_are_escaped() -> None:
    nasty = "<script>alert(1)</script>"
    html = html_report(journey_report(BASE, change=nasty, command=nasty, notes=(nasty,)))
    assert nasty not in html
    assert "&lt;script&gt;" in html


def test_the_data_follow_the_schema_and_are_strict_json(whole: Prints, plain: Prints) -> None:
    for found in (whole.data, plain.data):
        jsonschema.validate(json.loads(json.dumps(found, allow_nan=False)), report_schema())
    assert plain.data["diff"] is None
    assert whole.data["diff"] is not None
    assert whole.data["options"]


@pytest.mark.usefixtures("chain_alone")
def test_a_promise_that_breaks_inside_the_band_is_said_and_is_null_in_json() -> None:
    report = journey_report(BASE.with_changes(tpot_seconds=0.0075))
    assert report.explanation.band.num_broken > 0
    assert "no bound (the promise breaks)" in text_report(report)
    found = report_data(report)
    assert found["continuous_band"]["high"] is None
    jsonschema.validate(json.loads(json.dumps(found, allow_nan=False)), report_schema())


def test_what_cannot_be_done_is_said_below_the_options_and_not_inside_a_column_of_numbers(whole: Prints) -> None:
    refusal = Option(what="more", changes={}, refused="no & never")
    html = html_report(replace(whole.report, options=(*whole.report.options, refusal)))
    assert '<p class="soft">more: not possible. no &amp; never</p>' in html
    assert "no &amp; never</td>" not in html


def test_options_are_journeys_beside_this_one_and_what_cannot_be_done_says_why() -> None:
    found = {option.what: option for option in options(BASE)}
    w8a8 = found["FP8 weights and arithmetic (W8A8)"].diff
    int8 = found["weights in INT8, arithmetic as before"].diff
    assert w8a8 is not None
    assert int8 is not None
    # The course's table: W8A8 about -33 % where prefill is over half of the interval, weight-only INT8 about -0.5 %.
    assert round(100 * w8a8.relative) == -33
    assert round(1000 * int8.relative) == -5
    on_a100 = BASE.with_changes(device="a100-80gb-sxm", tariff=None)
    refused = next(o for o in options(on_a100) if o.what == "FP8 weights and arithmetic (W8A8)")
    assert refused.diff is None
    assert "fp8" in refused.refused
    assert all(option.changes["kv_dtype"] != "fp8" or len(option.changes) > 1
               for option in options(BASE.with_changes(kv_dtype="fp8")) if "kv_dtype" in option.changes)  # fmt: skip


def test_every_switch_of_the_ledger_is_an_option_of_the_command_and_moves_the_bill_or_says_that_it_does_not() -> None:
    flags = {flag for each in get_command(app).commands["bill"].params for flag in each.opts}  # type: ignore[attr-defined]
    ledger = switches(BASE)
    assert {each.flag for each in ledger} <= flags
    moved = [each.flag for each in ledger if each.relative or (each.journey and each.flag == "--spares")]
    assert len(moved) >= 10
    spares = next(each for each in ledger if each.flag == "--spares")
    assert spares.journey is not None
    assert spares.journey.bill.billed_usd_per_month == 7 * 730 * 2.95


def test_cross_checks_print_what_is_left_over() -> None:
    found = cross_checks()
    assert [check.computed == check.published for check in found[:4]] == [True] * 4
    # 30e9 B and 4 * 8,192 * 1e5 B over 16 * 8.1e11 B/s is 2.568 ms; the book prints 2.57.
    assert found[4].computed == pytest.approx(33.2768e9 / 12.96e12)
    assert all(abs(check.residual) < 0.01 for check in found)


@pytest.mark.usefixtures("chain_alone")
def test_a_traced_module_is_reported_too() -> None:
    load = Workload(arrival_requests_per_second=60, prompt_tokens=64, output_tokens=64)
    report = journey_report(Journey(model=CharLM(), workload=load, as_of=date(2026, 1, 1)))
    assert "465,600 parameters" in text_report(report)
    assert "465,600 parameters" in html_report(report)
    jsonschema.validate(json.loads(json.dumps(report_data(report), allow_nan=False)), report_schema())
