"""One excellent folder for all tests, and what a folder loses."""

from pathlib import Path

import pytest

from grading.capstone.judging import PARTS, held_out_court, judge_part
from tests.capstone.submissions import COMMITTED, write_submission


@pytest.fixture(scope="session")
def excellent(tmp_path_factory):
    return write_submission(tmp_path_factory.mktemp("excellent"))


@pytest.fixture(scope="session")
def lost():
    """The parts that a folder loses on the held-out runs."""

    def parts(folder: Path, committed=COMMITTED, seed="0"):
        held = held_out_court(seed, committed)
        return {name for name in PARTS if judge_part(name, folder, held) == 0}

    return parts
