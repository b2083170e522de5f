from tests.engines.triton.conftest import device

__all__ = ["device"]
