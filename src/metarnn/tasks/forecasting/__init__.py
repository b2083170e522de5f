"""What follows in series of numbers: one or many, a number or a distribution."""

from metarnn.tasks.forecasting.baselines import baselines, linear, naive, seasonal
from metarnn.tasks.forecasting.dates import Frequency
from metarnn.tasks.forecasting.embedded import EMBEDDED
from metarnn.tasks.forecasting.likelihoods import LEVELS, likelihood
from metarnn.tasks.forecasting.load import load, load_panel
from metarnn.tasks.forecasting.model import (
    Forecast,
    Forecaster,
    ForecasterOptions,
    build_model,
)
from metarnn.tasks.forecasting.series import Panel, Series, from_array, read_csv
from metarnn.tasks.forecasting.task import ForecastingTask
from metarnn.tasks.forecasting.windows import (
    Scheme,
    Window,
    Windows,
    borders,
    make_scheme,
    training_season,
)

__all__ = [
    "EMBEDDED",
    "LEVELS",
    "Forecast",
    "Forecaster",
    "ForecasterOptions",
    "ForecastingTask",
    "Frequency",
    "Panel",
    "Scheme",
    "Series",
    "Window",
    "Windows",
    "baselines",
    "borders",
    "build_model",
    "from_array",
    "likelihood",
    "linear",
    "load",
    "load_panel",
    "make_scheme",
    "naive",
    "read_csv",
    "seasonal",
    "training_season",
]
