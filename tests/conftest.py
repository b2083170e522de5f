import pytest
from hypothesis import settings

from tests.helpers import interpreter

__all__ = ["interpreter"]  # imported for what it does, before any test imports Triton

# The first example of a test may pay for what torch sets up once, far over the default deadline.
settings.register_profile("metarnn", deadline=None)
settings.load_profile("metarnn")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is alone with it at the end."""
    items.sort(key=lambda item: [item.get_closest_marker(m) is None for m in ("slow", "medium")])
