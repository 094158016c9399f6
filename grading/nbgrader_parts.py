"""Our one addition to nbgrader's own chain."""

from __future__ import annotations

from typing import Any

from nbgrader.preprocessors import NbGraderPreprocessor

from grading.cells import GRADED_ROLES, text_hash

SKIP = "skip-execution"


class RunGradedCellsOnly(NbGraderPreprocessor):
    """Grading runs set-up, predictions and exercises; cells that only teach are skipped.

    A lesson cell that the learner changed is run: the answer may rest on it. So is every cell the learner
    added. A skip tag set by a learner is removed.
    """

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        if cell.cell_type != "code":
            return cell, resources
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != SKIP]
        ours = cell.metadata.get("trace_a_tensor", {})
        teaches = ours.get("role") not in (*GRADED_ROLES, None)
        if teaches and ours.get("text") == text_hash(cell.source):
            tags.append(SKIP)
        if tags or "tags" in cell.metadata:
            cell.metadata["tags"] = tags
        return cell, resources
