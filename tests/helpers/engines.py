"""Generated code, left out of the choice where a claim is not about engines.

Compiling a cell anew for each combination of its options takes longer than all else in a test.
The claims that depend on the engine are tested on each of them, named (`cases.RUNNABLE`).
"""

from collections.abc import Iterator

import pytest

from metarnn.engines import ENGINES


@pytest.fixture(autouse=True, scope="module")
def auto_stays_in_torch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ENGINES["cpu"], "slower", lambda request: "left out of these tests")
        yield
