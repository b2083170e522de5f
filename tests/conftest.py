from hypothesis import settings

# The first example of a test may pay for what torch sets up once, far over the default deadline.
settings.register_profile("metarnn", deadline=None)
settings.load_profile("metarnn")
