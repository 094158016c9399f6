import pytest

from course_lib.lesson.progress import forget_memory


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Progress of its own for every test."""
    monkeypatch.setenv("TRACE_A_TENSOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    forget_memory()
    yield tmp_path / "home"
    forget_memory()
