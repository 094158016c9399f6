"""Build the notebooks, prove the exercises, grade with nbgrader. ``python -m grading.build`` and ``.prove``."""
