"""Submission folders made by code: the excellent one, and patches of it."""

import shutil

from grading.capstone.memo import Effect
from grading.cells import GRADING, STARTERS

EXCELLENT = GRADING / "staff" / "submissions" / "capstone" / "excellent"
COMMITTED = Effect(percent=-21.3, low=-25.0, high=-17.0)

EVERY_QUERY_HEAD = (
    (
        "    return (\n        shape.decode_weight_bytes",
        "    kept = shape.with_changes(num_kv_heads=shape.num_heads)\n    return (\n        shape.decode_weight_bytes",
    ),
    ("        shape.kv_bytes_per_token(config.kv", "        kept.kv_bytes_per_token(config.kv"),
    (
        "kv_tokens * config.shape.kv_bytes",
        "kv_tokens * config.shape.with_changes(num_kv_heads=config.shape.num_heads).kv_bytes",
    ),
    ("[1, 1, 1, 1, 0, 0, 0]", "[1, 1, 1, 0, 0, 0, 0]"),
)
"""Patches of model.py: keys and values kept for every query head, in time and in bytes."""


def write_submission(folder, *, model=(), memo=()):
    """The starter's data, and the excellent files with every (old, new) patch applied once."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STARTERS / "capstone" / "recordings.json", folder)
    for name, patches in (("model.py", model), ("memo.md", memo)):
        text = (EXCELLENT / name).read_text(encoding="utf-8")
        for old, new in patches:
            assert text.count(old) == 1, (name, old, text.count(old))
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
