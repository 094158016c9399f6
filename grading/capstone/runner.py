"""Run a submission's model once, in a process of its own: ``python -P -m grading.capstone.runner IN OUT``.

IN holds cells as JSON; OUT gets, for each, the dict that ``predict`` returned or why there is none. The working
folder is a copy of the submission. What the model prints goes nowhere.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grading.capstone.records import Cell

MAX_WORDS = 300


def load_predict(path: Path) -> Callable[..., Any]:
    """The function ``predict`` of a model file.

    Raises:
        AttributeError: the file has none.
    """
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model"] = module
    spec.loader.exec_module(module)
    found = getattr(module, "predict", None)
    if not callable(found):
        raise AttributeError("model.py defines no function predict(config, machine, workload)")
    predict: Callable[..., Any] = found
    return predict


def answer(predict: Callable[..., Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """``{"value": ...}``, ``{"missing": true}`` for a stub, or ``{"error": words}``."""
    cell = Cell.from_dict(data)
    try:
        value = predict(cell.config, cell.machine, cell.traffic)
        if value is None or value is ...:
            return {"missing": True}
        return {"value": plain(value)}
    except NotImplementedError as error:
        return {"missing": True} if not str(error) else {"error": words(error)}
    except Exception as error:
        return {"error": words(error)}


def plain(value: Any) -> Any:
    """Numbers and dicts only, NumPy's made Python's; anything else raises."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"predict returns numbers and dicts of numbers, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"predict returned {value}")
    return value


def words(error: BaseException) -> str:
    """Kind and message, cut."""
    return f"{type(error).__name__}: {error}"[:MAX_WORDS]


def main(source: Path, target: Path) -> None:
    cells = json.loads(source.read_text(encoding="utf-8"))
    real = sys.stdout, sys.stderr
    try:
        predict = load_predict(Path.cwd() / "model.py")
    except NotImplementedError:
        result: dict[str, Any] = {"missing": True}
    except Exception as error:
        result = {"load_error": words(error)}
    else:
        result = {"answers": [answer(predict, cell) for cell in cells]}
    sys.stdout, sys.stderr = real
    target.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
