"""``python -m grading.capstone FOLDER``: what a submission earns on the public part, and why not more."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course_lib.lesson.running import NotAttempted
from grading.capstone.findings import Finding
from grading.capstone.judging import PARTS, Court, held_out_court, public_court


def report(folder: Path, held: Court) -> tuple[float, list[str]]:
    """Points and one line for each part."""
    total, lines = 0.0, []
    for name, (points, part) in PARTS.items():
        earned, words = points, "passed"
        try:
            part(folder, held)
        except NotAttempted:
            earned, words = 0.0, "not attempted"
        except Finding as found:
            earned, words = 0.0, f"{found.name}: {found}"
        total += earned
        lines.append(f"{name:<24} {earned:>4g} of {points:g}  {words}")
    return total, lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grading.capstone", description="Judge a capstone folder.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("."), help="holds model.py and memo.md")
    parser.add_argument("--held-out", metavar="SEED", help="staff: judge on the held-out runs of a course's seed")
    options = parser.parse_args(arguments)
    committed = public_court().committed
    held = public_court() if options.held_out is None else held_out_court(options.held_out, committed)
    total, lines = report(options.folder.resolve(), held)
    print("\n".join([*lines, f"{total:g} of 80 points; a person gives the other 20"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
