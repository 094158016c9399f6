"""Learn by predicting: commit a number, look, explain; and checks that know the usual mistakes.

In a notebook::

    from course_lib.lesson import check, predict, reveal

For those who write lessons: :class:`Exercise` and :class:`Diagnosis`; see docs/lesson-format.md.
"""

from course_lib.lesson.catalogue import all_exercises, exercise
from course_lib.lesson.checking import CheckResult, check, judge
from course_lib.lesson.environment import environment_report
from course_lib.lesson.exercise import Diagnosis, Exercise, Raised
from course_lib.lesson.pages import course_map, progress_page
from course_lib.lesson.predictions import Revealed, predict, reveal

__all__ = [
    "CheckResult", "Diagnosis", "Exercise", "Raised", "Revealed", "all_exercises", "check", "course_map",
    "environment_report", "exercise", "judge", "predict", "progress_page", "reveal",
]  # fmt: skip
