"""What the judge says when something is not as it must be."""

from __future__ import annotations

from course_lib.lesson.values import NotComparableError


class Finding(NotComparableError):
    """One thing that costs the points: its short name, and words with the numbers in them.

    It is a NotComparableError so that a check's panel shows the words and no traceback.
    """

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name
