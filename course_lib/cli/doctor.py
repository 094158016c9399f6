"""``trace-tensor doctor``: is this machine ready for the course?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from course_lib.cli.errors import reported
from course_lib.cli.options import Json

if TYPE_CHECKING:
    from course_lib.lesson.environment import EnvironmentCheck

__all__ = ["doctor"]


@reported
def doctor(json: Json = False) -> None:
    """Check Python, packages, memory and cores, with a cure for what is missing; exit 1 where something needed is."""
    from course_lib.cli.output import print_json, print_text
    from course_lib.lesson.environment import environment_checks

    checks = environment_checks()
    missing = [check for check in checks if check.state == "missing"]
    if json:
        print_json({"format": "trace-a-tensor doctor 1", "ready": not missing, "checks": [asdict(c) for c in checks]})
    else:
        print_text(_text(checks, missing))
    if missing:
        raise typer.Exit(1)


def _text(checks: Sequence[EnvironmentCheck], missing: Sequence[EnvironmentCheck]) -> str:
    from course_lib.report.text import columns

    table = columns([(check.what, check.state, check.found) for check in checks])
    cures = "\n".join(f"  {check.what}: {check.cure}" for check in checks if check.cure)
    head = f"{len(missing)} to mend" if missing else "Ready"
    return f"{head}\n\n{table}" + (f"\n\n{cures}" if cures else "")
