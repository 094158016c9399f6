"""Each lesson is executed once, in a process of its own, and every test of it reads the same report."""

import functools
import json
import os
import subprocess
import sys

import pytest

from grading.cells import ROOT


@pytest.fixture(scope="session")
def executed(tmp_path_factory):
    @functools.cache
    def run(source, mode):
        environment = os.environ | {
            "TRACE_A_TENSOR_HOME": str(tmp_path_factory.mktemp("home")),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("NBGRADER_EXECUTION", None)
        done = subprocess.run(
            [sys.executable, "-m", "grading.execute", str(source), "--as", mode],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
