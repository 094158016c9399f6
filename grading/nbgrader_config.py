"""nbgrader's configuration for this course. Use it as it is: ``cd grading && nbgrader autograde week1_backprop``.

``python -m grading.build --nbgrader`` writes the source notebooks into grading/work/source first.
"""

import os
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
c = get_config()  # noqa: F821 - given by nbgrader when it reads this file

# nbgrader starts the `alembic` program for a new gradebook and looks for it on PATH only.
scripts = str(Path(sys.executable).parent)
if scripts not in os.environ.get("PATH", "").split(os.pathsep):
    os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")
# Submissions are graded far from the course folder: say where the checks are.
os.environ.setdefault("TRACE_A_TENSOR_CHECKS", str(here / "checks"))
# The course's own modules come first, in nbgrader and in the kernels it starts.
if str(here.parent) not in sys.path:
    sys.path.insert(0, str(here.parent))
paths = [str(here.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))

c.CourseDirectory.course_id = "trace-a-tensor"
c.CourseDirectory.root = str(here / "work")
c.IncludeHeaderFooter.header = ""
# The stub raises nothing, so that an untouched notebook runs from start to end.
c.ClearSolutions.code_stub = {"python": "...  # your code here"}
c.ClearSolutions.text_stub = "*Your answer here.*"
# Handed in beside the notebook: the learner's version is graded, every other file is the course's own.
c.Autograde.exclude_overwriting = {"capstone": ["model.py", "memo.md"]}
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
    "grading.nbgrader_parts.RunGradedCellsOnly",
]
c.Execute.timeout = 120
c.Exchange.root = str(here / "work" / "exchange")
