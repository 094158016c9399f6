"""What must be shown of an exercise: right styles that pass, and named wrong answers that are caught."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from course_lib.errors import InvalidInputError
from grading.cells import GRADING, Lesson

PROOFS = GRADING / "staff" / "proofs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A wrong answer that a learner would give, and the misconception the check must name.

    ``name`` is the expected :attr:`CheckResult.misconception`; ``label`` tells two mutants of one
    misconception apart.
    """

    name: str
    answer: Any
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """For one exercise: at least two more right styles (the notebook's solution is the reference), at least
    four mutants, and further cases that every right answer must pass."""

    id: str
    styles: Mapping[str, Any]
    mutants: tuple[Mutant, ...]
    extra_cases: tuple[tuple[Any, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.mutants) < 4:
            raise InvalidInputError(f"{self.id} needs at least four mutants", given=len(self.mutants))
        if len(self.styles) < 2:
            raise InvalidInputError(f"{self.id} needs at least two correct styles", given=len(self.styles))
        object.__setattr__(self, "styles", MappingProxyType(dict(self.styles)))


def proofs_of(lesson: Lesson) -> dict[str, Proof]:
    """The PROOFS of a lesson, by exercise id."""
    path = PROOFS / lesson.assignment / f"{lesson.name}.py"
    if not path.exists():
        raise InvalidInputError(f"{lesson.name} has no proofs", given=str(path.relative_to(GRADING.parent)))
    module = load(path)
    return {proof.id: proof for proof in module.PROOFS}


def load(path: Path) -> Any:
    """Import a file by its path."""
    spec = importlib.util.spec_from_file_location(f"proofs_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
