"""Call a learner's code without letting it disturb the notebook: quietly, on copies, and with a short story
when it raises."""

from __future__ import annotations

import contextlib
import copy
import io
import linecache
import logging
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_lib.lesson.exercise import Exercise, Raised
from course_lib.lesson.values import NotComparableError, plain

__all__ = ["NotAttempted", "observe_answer"]

_LIBRARY = (str(Path(__file__).resolve().parents[1]), sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"])


class NotAttempted(NotComparableError):
    """The cell is as it was released: nothing has been written yet."""


class _Sink(io.TextIOBase):
    """Swallows what is printed; 20 MB of it costs no memory."""

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Prints, stderr, warnings and log lines go nowhere: text on stderr would cost marks in nbgrader."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(_Sink()), contextlib.redirect_stderr(_Sink()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def observe_answer(exercise: Exercise, answer: Any, inputs: tuple[Any, ...]) -> Any:
    """What the learner's answer does on these inputs: a plain value, or a :class:`Raised`.

    Raises:
        NotAttempted: the answer is the released stub.
    """
    probe: Callable[..., Any] = exercise.probe or _call if exercise.kind == "function" else exercise.probe or _value
    if answer is ... or answer is None:
        raise NotAttempted
    if exercise.kind == "function" and not callable(answer):
        kind = type(answer).__name__
        message = f"check() needs your function, but got {kind}: write its name without ()"
        return Raised(error=NotComparableError(message))
    try:
        with _quiet(), _watched(exercise.forbidden):
            result = probe(answer, *copy.deepcopy(inputs))
            if result is None or result is ...:
                raise NotAttempted
            return result if exercise.same else plain(result)
    except NotAttempted:
        raise
    except NotImplementedError as error:
        if error.args and error.args[0] not in ("", None):
            return Raised(error=error, where=_learner_frame(error))
        raise NotAttempted from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a learner's sys.exit() must not end the kernel
        return Raised(error=error, where=_learner_frame(error))


def _call(answer: Callable[..., Any], *inputs: Any) -> Any:
    return answer(*inputs)


def _value(answer: Any) -> Any:
    return answer


class ForbiddenCallError(Exception):
    """The exercise asks to build an operation, and the answer called the library's own."""


@contextlib.contextmanager
def _watched(forbidden: tuple[str, ...]) -> Iterator[None]:
    """Raise when an operation that is to be implemented is called instead."""
    if not forbidden:
        yield
        return
    from course_lib.tensor.dispatch import observe

    class Watch:
        def on_call(self, call: Any) -> None:
            if call.op in forbidden:
                raise ForbiddenCallError(
                    f"this exercise asks you to build {call.op!r}; your answer calls the library's own"
                )

    with observe(Watch()):
        yield


def _is_ours(filename: str) -> bool:
    """Is this line the library's or a check file's, not the learner's?"""
    return filename.startswith(_LIBRARY) or "checks" in Path(filename).parts[-3:-1]


def _learner_frame(error: BaseException) -> str:
    """The last line of the learner's own code on the way to the error; "" when the call itself failed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    if isinstance(error, SyntaxError) or not frames:
        return ""
    last = frames[-1]
    source = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"line {last.lineno} of {last.name}:  {source}" if source else f"line {last.lineno} of {last.name}"

