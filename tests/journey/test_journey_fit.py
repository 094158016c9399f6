"""What does not fit: the smallest degree that holds it, or the true reason why none is proposed."""

from __future__ import annotations

import dataclasses

import pytest

from course_lib.errors import DoesNotFitError
from course_lib.hardware import device
from course_lib.journey import Journey


@pytest.mark.parametrize("degree", [1, "auto"])
def test_a_device_without_a_link_is_named_as_the_reason(degree: int | str) -> None:
    # 15.2 GB of bf16 weights in two halves would fit 11.4 GB each, but how they would talk is not on record.
    with pytest.raises(DoesNotFitError, match="no link between devices is on record for NVIDIA T4"):
        Journey(model="qwen2.5-7b", device="t4", tariff=0.5, tensor_parallel=degree)


def test_a_model_beyond_every_degree_is_named_with_the_largest_degree() -> None:
    small = dataclasses.replace(device("h100-sxm"), memory_bytes=4_000_000_000)
    with pytest.raises(DoesNotFitError, match=r"No tensor-parallel degree up to 32 holds it\. Store"):
        Journey(model="llama-3-8b", device=small, tariff=1.0, tensor_parallel="auto", reserve_bytes=3.5e9)


def test_a_smaller_device_with_a_link_gets_a_degree() -> None:
    # 16.06 GB / 2 = 8.03 GB and the cache of a sequence fit 0.9 * 16 - 3 = 11.4 GB; one device holds 11.4 < 16.06
    small = dataclasses.replace(device("h100-sxm"), memory_bytes=16_000_000_000)
    with pytest.raises(DoesNotFitError, match="tensor_parallel=2 is the smallest degree that holds it"):
        Journey(model="llama-3-8b", device=small, tariff=1.0)
