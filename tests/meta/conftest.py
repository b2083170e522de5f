from tests.helpers.engines import auto_stays_in_torch

__all__ = ["auto_stays_in_torch"]
