"""Search of readable rows on a CUDA device gives what the processor gives."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from indexing.gpu import GpuSearch

REASON = (
    "the installed FAISS has no GPU support (extra `gpu`)"
    if not hasattr(faiss, "StandardGpuResources")
    else "no CUDA device: faiss.get_num_gpus() is 0"
    if faiss.get_num_gpus() < 1
    else ""
)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON)]

ROWS = np.random.default_rng(5).normal(size=(120_000, 384)).astype(np.float32)


class Owner:
    """A readable set."""


def test_the_device_passes_the_canary_and_agrees_with_the_processor() -> None:
    gpu = GpuSearch.start(1 << 30)
    assert gpu is not None
    owner = Owner()
    for number in range(20):
        vector = ROWS[number]
        found = gpu.nearest(owner, lambda: ROWS, len(ROWS), vector, 10)
        assert found is not None
        right = ROWS @ vector
        assert np.allclose(found[0], np.sort(right)[::-1][:10], rtol=1e-4)
        assert found[1][0] == int(np.argmax(right))


def test_an_unreadable_row_is_not_on_the_device() -> None:
    gpu = GpuSearch.start(1 << 30)
    assert gpu is not None
    readable = np.delete(np.arange(len(ROWS)), 17)
    found = gpu.nearest(Owner(), lambda: ROWS[readable], len(readable), ROWS[17], 10)
    assert found is not None
    assert 17 not in readable[found[1]]
    assert gpu.nearest(Owner(), lambda: ROWS, len(ROWS), ROWS[17], 10)[1][0] == 17  # type: ignore[index]
