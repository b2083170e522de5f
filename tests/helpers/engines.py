"""Generated code, left out of the choice where a claim is not about engines.

Compiling a cell anew for each combination of its options takes longer than all else in a test.
The claims that depend on the engine are tested on each of them, named (`cases.RUNNABLE`).
"""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def auto_stays_in_torch() -> Iterator[None]:
    module = sys.modules["metarnn.engines.choose"]
    with pytest.MonkeyPatch.context() as patch:
        kept = tuple(engine for engine in vars(module)["ENGINES"] if engine != "cpu")
        patch.setattr(module, "ENGINES", kept)
        yield
