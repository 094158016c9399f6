"""Dated, cited rental prices: one file, read as data; your own file has the same form."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from course_lib.cost.tariff import Tariff
from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.sources import Citation

__all__ = ["price", "price_template", "prices", "read_prices"]

_REQUIRED = ("device", "provider", "usd_per_hour", "date", "source")
_OPTIONAL = (
    "pricing", "default", "printed", "kind", "note", "num_accelerators", "list_usd_per_hour", "upfront_usd",
    "term_hours", "interruptions_per_hour", "hours_lost_per_interruption",
)  # fmt: skip
_MOST_USD = 1e12
_TERMS = ("list_usd_per_hour", "upfront_usd", "term_hours", "interruptions_per_hour", "hours_lost_per_interruption")


def prices(path: str | Path | None = None) -> tuple[Tariff, ...]:
    """Every recorded price, the default of each device before its others.

    Args:
        path: a prices file of your own; ``None`` for the one that ships with the course.

    >>> [tariff.usd_per_hour for tariff in prices() if tariff.device == "h200"]
    [3.5, 1.45]
    """
    return _catalogue() if path is None else read_prices(path)


def price(
    device: str, provider: str | None = None, *, pricing: str | None = None, path: str | Path | None = None
) -> Tariff:
    """The price of one device: the default one, or that of a named provider or pricing.

    Args:
        device: a name in the prices file, such as ``"h100-sxm"``.
        provider: who sells it; ``None`` for the default.
        pricing: "on-demand", "reserved" or "spot"; ``None`` for the first that matches.
        path: a prices file of your own.

    Raises:
        UnknownNameError: no price for this device, or none from this provider.

    >>> price("h100-sxm").usd_per_hour, price("h100-sxm", "aws").usd_per_hour
    (2.95, 6.88)
    >>> price("h100-sxm", pricing="spot").usd_per_hour
    1.25
    """
    catalogue = prices(path)
    own = [tariff for tariff in catalogue if tariff.device == device]
    if not own:
        known = {tariff.device for tariff in catalogue}
        raise UnknownNameError(
            "device in the prices", device, known,
            next_step="Give tariff=Tariff(usd_per_hour=...) or a prices file (price_template() writes one).",
        )  # fmt: skip
    if provider is not None:
        sellers = {tariff.provider for tariff in own}
        own = [tariff for tariff in own if tariff.provider == provider]
        if not own:
            raise UnknownNameError(f"provider of {device}", provider, sellers)
    matching = [tariff for tariff in own if pricing in (None, tariff.pricing)]
    if not matching:
        raise UnknownNameError(f"pricing of {device}", str(pricing), {tariff.pricing for tariff in own})
    return matching[0]


def read_prices(path: str | Path) -> tuple[Tariff, ...]:
    """Read and check a prices file in TOML: one ``[[price]]`` table for each price.

    Raises:
        InvalidInputError: the file cannot be read, a table lacks a field or has one that nobody knows, or the
            printed text and the number disagree.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: bytes that are not UTF-8, a NUL in the path
        raise InvalidInputError(
            "a prices file is a readable TOML file", given=str(path), next_step=f"Reading it failed: {error}."
        ) from None
    return _parse(text, str(path))


@cache
def _catalogue() -> tuple[Tariff, ...]:
    return _parse((files("course_lib.cost") / "data" / "prices.toml").read_text(encoding="utf-8"), "prices.toml")


def _parse(text: str, name: str) -> tuple[Tariff, ...]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # malformed, a number of 5,000 digits, endless nesting
        raise InvalidInputError("a prices file is TOML", given=name, next_step=f"The parser says: {error}.") from None
    tables = document.get("price")
    if not isinstance(tables, list) or not tables:
        raise InvalidInputError("a prices file has at least one [[price]] table", given=name)
    read = [
        (_tariff(table, f"{name}, price {index}"), bool(table.get("default"))) for index, table in enumerate(tables, 1)
    ]
    for device in {tariff.device for tariff, _ in read}:
        if sum(default for tariff, default in read if tariff.device == device) > 1:
            raise InvalidInputError(f"one price of {device} at most is the default", given=name)
    return tuple(tariff for tariff, _ in sorted(read, key=lambda item: not item[1]))


def _tariff(table: Mapping[str, object], where: str) -> Tariff:
    """One ``[[price]]`` table as a tariff."""
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise InvalidInputError(f"{where}: a price has {', '.join(_REQUIRED)}", given=f"no {', '.join(missing)}")
    for key in table:
        if key not in _REQUIRED + _OPTIONAL:
            raise UnknownNameError(f"field in {where}", key, _REQUIRED + _OPTIONAL)
    usd, printed = table["usd_per_hour"], str(table.get("printed", ""))
    if not isinstance(usd, int | float) or isinstance(usd, bool) or abs(usd) > _MOST_USD:
        asked, allowed = f"{where}: usd_per_hour is a number", f"at most {_MOST_USD:,.0f}"
        raise InvalidInputError(asked, allowed=allowed, given=repr(usd)[:40])
    citation = Citation(
        source=str(table["source"]), printed=printed, kind=str(table.get("kind", "catalogue")),
        date=str(table["date"]), note=str(table.get("note", "")),
    )  # fmt: skip
    accelerators = table.get("num_accelerators", 1)
    if not isinstance(accelerators, int) or accelerators < 1:
        raise InvalidInputError(f"{where}: num_accelerators is a whole number from 1", given=repr(accelerators))
    if printed and abs(citation.value / accelerators - usd) > 1e-9 * usd:
        asked = f"{where}: usd_per_hour is the printed price over num_accelerators"
        raise InvalidInputError(asked, given=f"{usd} and {printed!r}/{accelerators}")
    terms = {key: table[key] for key in _TERMS if key in table}
    return Tariff(
        usd_per_hour=float(usd), device=str(table["device"]), provider=str(table["provider"]),
        pricing=str(table.get("pricing", "on-demand")), date=str(table["date"]), citation=citation, **terms,  # type: ignore[arg-type]
    )  # fmt: skip


def price_template(device: str = "my-device") -> str:
    """A commented prices file to start from, with every field explained.

    >>> "usd_per_hour" in price_template("h100-sxm")
    True
    """
    if '"' in device or "\\" in device or "\n" in device:
        raise InvalidInputError("a device name has no quotes, backslashes or line ends", given=repr(device))
    return f'''# Prices of accelerators: one [[price]] table for each.
[[price]]
device = "{device}"            # the device name that a bill asks for
provider = "my-provider"       # who sells it
pricing = "on-demand"          # "on-demand", "reserved" or "spot"
usd_per_hour = 1.00            # USD for one accelerator for one hour
default = true                 # used when no provider is named; one for each device
date = "2026-01-31"            # the day (or month, or year) on which the price was current
source = "my contract, page 1" # where you read it
printed = "1.00"               # the price exactly as printed there; checked against usd_per_hour
num_accelerators = 1           # what the printed price is for; it is divided by this
kind = "assumed"               # vendor, paper, catalogue, secondary, derived or assumed
note = ""                      # what a reader should know
# list_usd_per_hour = 2.00             # the public on-demand price, when yours is lower
# upfront_usd = 0.0                    # paid once for the term, on top of the hours
# term_hours = 8760                    # length of the promise
# interruptions_per_hour = 0.2         # spot: how often the machine is taken away
# hours_lost_per_interruption = 0.5    # spot: work to repeat each time
'''
