"""Series by a name: a CSV file, or what is at hand."""

from __future__ import annotations

from collections.abc import Sequence

from metarnn.tasks.forecasting.embedded import EMBEDDED
from metarnn.tasks.forecasting.series import Panel, read_csv
from metarnn.tasks.forecasting.windows import Scheme, Windows, make_scheme

SPLIT = "70/10/20"


def load_panel(data: str, **columns: str | bool | Sequence[str]) -> Panel:
    """The series of a CSV file (see `read_csv` for `columns`), or embedded ones."""
    if data in EMBEDDED:
        return EMBEDDED[data]()
    try:
        return read_csv(data, **columns)  # type: ignore[arg-type]
    except FileNotFoundError:
        names = ", ".join(EMBEDDED)
        raise FileNotFoundError(f"there is no file {data}. At hand: {names}") from None


def load(
    data: str = "sunspots",
    *,
    horizon: int = 12,
    lookback: int = 0,
    split: str = SPLIT,
    scheme: Scheme | None = None,
    **columns: str | bool | Sequence[str],
) -> Windows:
    """All windows of series, split by time.

    >>> windows = load("lorenz", horizon=20)
    >>> windows.scheme.lookback, len(windows.origins("test"))
    (150, 781)

    Args:
        data: a CSV file with a date column, or sunspots, lorenz, mackey-glass, van-der-pol, shops
        horizon: steps to forecast
        lookback: steps to see; 0 chooses
        split: shares "70/10/20", steps "8640/2880/2880" or months "12m/4m/4m"
        scheme: of a model that was trained before
        columns: see `read_csv`
    """
    panel = load_panel(data, **columns)
    scheme = make_scheme(panel, horizon, lookback, split) if scheme is None else scheme
    return Windows(panel, scheme, split)
