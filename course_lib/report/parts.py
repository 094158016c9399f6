"""Pieces of a page: sections, tables with captions, cards. Every text is escaped here and only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from course_lib.journey import Link, format_link

__all__ = ["cards", "link_rows", "paragraph", "section", "table"]


def section(anchor: str, title: str, *parts: str) -> str:
    """A section under a heading of the second level."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>\n{body}</section>'


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain words.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>"


def cards(rows: Iterable[tuple[str, str, str]]) -> str:
    """Cards of (name, large value, small print)."""
    made = (
        f'<div class="card"><dt>{escape(name)}</dt><dd class="big">{escape(value)}</dd>'
        f'<dd class="soft">{escape(small)}</dd></div>'
        for name, value, small in rows
    )
    return f'<dl class="cards">{"".join(made)}</dl>'


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()
) -> str:
    """A table with a caption; the first cell of a row is its header.

    Args:
        caption: what the table shows.
        header: column names.
        rows: cells.
        numbers: columns that are aligned right.
    """
    numbers = set(numbers)
    kinds = [' class="number"' if column in numbers else "" for column in range(len(header))]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(header, kinds))
    body = "".join(
        "<tr>" + f'<th scope="row">{escape(first)}</th>'
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(rest, kinds[1:])) + "</tr>"
        for first, *rest in rows
    )  # fmt: skip
    return _framed(caption, head, body)


def link_rows(caption: str, links: Iterable[Link]) -> str:
    """Links as a table: value, basis, formula with the numbers that went in, source."""
    columns = (("link", 30), ("value", 19), ("basis", 12), ("how it follows", 39))
    head = "".join(f'<th scope="col" style="width:{width}%">{name}</th>' for name, width in columns)
    return _framed(caption, head, "".join(_link_row(link) for link in links))


def _link_row(link: Link) -> str:
    numbers = ", ".join(f"{name} = {value:,.6g}" for name, value in link.inputs)
    source = f'<div class="soft">{escape(link.source)}</div>' if link.source else ""
    inputs = f"<details><summary>numbers</summary>{escape(numbers)}</details>" if numbers else ""
    return (
        f'<tr data-link="{escape(link.name)}"{" class=binds" if link.binds else ""}>'
        f'<th scope="row">{escape(link.title)}</th><td>{escape(format_link(link))}</td>'
        f'<td><span class="basis {link.basis}">{link.basis}</span></td>'
        f'<td><span class="formula">{escape(link.formula)}</span>{source}{inputs}</td></tr>'
    )


def _framed(caption: str, head: str, body: str) -> str:
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
