from hypothesis import settings

from tests.helpers import interpreter

__all__ = ["interpreter"]  # imported for what it does, before any test imports Triton

# The first example of a test may pay for what torch sets up once, far over the default deadline.
settings.register_profile("metarnn", deadline=None)
settings.load_profile("metarnn")
