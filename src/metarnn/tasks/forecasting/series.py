"""Series of numbers over time, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from metarnn.cells import check
from metarnn.tasks.forecasting import dates as calendar
from metarnn.tasks.forecasting.dates import Frequency
from metarnn.tasks.rows import MISSING, csv_rows, is_number

# Numbers that tables with gaps in their dates may grow to: so many, or so many for each given one.
ALWAYS, ROOM = 10_000_000, 100


@dataclass(frozen=True)
class Series:
    """One series, or several that are forecast together.

    values    [T, C], NaN where a number is missing
    known     [T + future, K], what is known ahead (holidays, prices); reaches into the future
    observed  [T, P], what is only known once it happened; NaN in both where a number is missing
    start     the date of the first step, None where there are none
    """

    name: str
    values: np.ndarray
    known: np.ndarray
    observed: np.ndarray
    start: np.datetime64 | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Panel:
    """All series of a data set.

    channels   what each series has: its name, or names where several are forecast together
    frequency  how far apart steps are
    static     [N, S], what is said of each series as a whole
    notes      what a person should know: gaps, missing values
    """

    series: tuple[Series, ...]
    channels: tuple[str, ...] = ("value",)
    frequency: Frequency = field(default_factory=Frequency)
    static: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    notes: tuple[str, ...] = ()

    @property
    def longest(self) -> int:
        return max(map(len, self.series))


def from_array(
    values: np.ndarray, names: Sequence[str], *, joint: bool = False, **more: object
) -> Panel:
    """A panel of the columns of [T, C], each a series, or all one where `joint`.

    >>> [len(s) for s in from_array(np.zeros((10, 2)), ["a", "b"]).series]
    [10, 10]
    """
    values = np.asarray(values, np.float64)
    none = np.zeros((len(values), 0))
    if joint:
        one = Series(",".join(names), values, none, none)
        return Panel((one,), tuple(names), **more)  # type: ignore[arg-type]
    each = [Series(n, values[:, [k]], none, none) for k, n in enumerate(names)]
    return Panel(tuple(each), **more)  # type: ignore[arg-type]


def read_csv(
    path: str | Path,
    *,
    targets: Sequence[str] = (),
    known: Sequence[str] = (),
    observed: Sequence[str] = (),
    static: Sequence[str] = (),
    series: str = "",
    joint: bool = False,
) -> Panel:
    """The series of a CSV file: a row a step, a column with the date.

    Args:
        path: the file
        targets: columns to forecast; by default all that are neither the date nor named otherwise
        known: columns that are known ahead; rows at the end with nothing in the targets give them
            for the future
        observed: columns that are only known once they happened
        static: columns that say something of a whole series
        series: the column that tells series apart, where they stand below one another
        joint: forecast all targets together instead of each as a series of its own
    """
    names, rows = _rows(Path(path))
    place = {name: k for k, name in enumerate(names)}
    for name in (*targets, *known, *observed, *static, *([series] if series else [])):
        check.one_of("column", name, names)
    date = _date_column(names, rows, {*targets, *known, *observed, *static, series})
    named = {date, series, *known, *observed, *static}
    targets = [name for name in (targets or names) if name not in named]
    if not targets:
        check.refuse("targets", list(targets), f"columns of {path} to forecast")
    groups: dict[str, list[list[str]]] = {}
    for row in rows:
        groups.setdefault(row[place[series]] if series else "", []).append(row)
    made, notes, steps = [], [], []
    room = max(ALWAYS, ROOM * len(rows) * len(names))
    for group, members in groups.items():
        where, title = f"{path}" + (f", {group}" if group else ""), group or Path(path).name
        if date is None:
            at, step, start = np.arange(len(members)), Frequency(), None
        else:
            when = calendar.parse([row[place[date]] for row in members])
            if when is None:
                raise ValueError(f"{where}: a value in the column {date!r} is no date")
            order = np.argsort(when, kind="stable")
            when, members = when[order], [members[k] for k in order]
            step = calendar.frequency(when)
            try:
                at, start = calendar.places(when, step), when[0]
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        table = {n: _numbers(members, place[n], n, where) for n in (*targets, *known, *observed)}
        steps.append(step)
        lost = int(at[-1]) + 1 - len(at)
        room -= (int(at[-1]) + 1) * (len(targets) + len(known) + len(observed))
        if room < 0:
            raise ValueError(
                f"{where}: {lost:,} of {int(at[-1]) + 1:,} steps ({step.name}) are missing, too "
                "many to fill in: is the step meant to be longer, or a date wrong?"
            )
        if lost:
            notes.append(
                f"{group or Path(path).name}: {lost:,} steps are missing; the last value stands in"
            )
        values, known_rows, observed_rows = (
            _spread([table[n] for n in some], at) for some in (targets, known, observed)
        )
        there = np.flatnonzero(np.isfinite(values).any(1))
        if not len(there):
            raise ValueError(f"{where}: there is no number in {', '.join(targets)}")
        end = int(there[-1]) + 1  # what follows is the future of what is known ahead
        holes = int(np.isnan(values[:end]).sum()) - lost * len(targets)
        if holes > 0:
            notes.append(f"{title}: {holes:,} values are missing; the last one stands in")
        whole = Series(group, values[:end], known_rows, observed_rows[:end], start)
        made.append((whole, members))
    if len(set(steps)) > 1:
        check.refuse("dates", {s.name for s in steps}, "the same step in all series")
    if joint or len(targets) == 1:
        found = [(replace(s, name=s.name or ",".join(targets)), m) for s, m in made]
        channels = tuple(targets)
    else:
        found = [
            (replace(s, name=f"{s.name}.{t}".strip("."), values=s.values[:, [k]]), m)
            for s, m in made
            for k, t in enumerate(targets)
        ]
        channels = ("value",)
    about = _static([m[0] for _, m in found], [place[name] for name in static])
    return Panel(tuple(s for s, _ in found), channels, steps[0], about, tuple(notes))


def held(values: np.ndarray) -> np.ndarray:
    """[T, C] with the last value in the place of missing ones, and 0 before the first.

    Nothing later than a step says what stands there: an interpolation would tell a model of the
    value to forecast.
    """
    there = np.isfinite(values)
    if there.all():
        return values
    last = np.maximum.accumulate(np.where(there, np.arange(len(values))[:, None], -1), 0)
    return np.where(last < 0, 0.0, np.take_along_axis(values, np.maximum(last, 0), 0))


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    rows = csv_rows(path)
    if len(rows) < 3:
        raise ValueError(f"{path}: expected a header and at least two rows")
    return [name.strip() for name in rows[0]], rows[1:]


def _date_column(names: list[str], rows: list[list[str]], taken: set[str]) -> str | None:
    """The first column that holds dates: by its name where they could be numbers as well."""
    for k, name in enumerate(names):
        if name in taken:
            continue
        likely = name.lower() in calendar.COLUMNS
        text = rows[0][k].strip()
        if (likely or not is_number(text)) and calendar.parse([text]) is not None:
            return name
    return None


def _numbers(rows: list[list[str]], column: int, name: str, where: str) -> np.ndarray:
    found = np.full(len(rows), np.nan)
    for k, row in enumerate(rows):
        text = row[column].strip()
        if text.lower() in MISSING:
            continue
        try:
            found[k] = float(text)
        except ValueError:
            advice = "Name it with --static or --series, or name the --targets."
            raise ValueError(f"{where}, {name}: {text!r} is no number. {advice}") from None
    return found


def _spread(columns: list[np.ndarray], at: np.ndarray) -> np.ndarray:
    found = np.full((int(at[-1]) + 1, len(columns)), np.nan)
    for k, column in enumerate(columns):
        found[at, k] = column
    return found


def _static(rows: list[list[str]], columns: list[int]) -> np.ndarray:
    """Numbers as they are, standardised; words as one column a word."""
    found: list[np.ndarray] = []
    for column in columns:
        texts = [row[column].strip() for row in rows]
        if all(is_number(text) for text in texts):
            numbers = np.array([float(text or 0) for text in texts])
            found.append((numbers - numbers.mean()) / (numbers.std() or 1.0))
        else:
            found += [np.array([float(t == word) for t in texts]) for word in sorted(set(texts))]
    return np.stack(found, 1) if found else np.zeros((len(rows), 0))


def period(series: Sequence[np.ndarray], longest: int = 400) -> int:
    """The lag of the highest peak of the autocorrelation of the longest series; 1 for none."""
    x = max(series, key=len)[:, :1]
    x = held(x - np.nanmean(x))[:, 0]
    x = x - np.polyval(np.polyfit(np.arange(len(x)), x, 1), np.arange(len(x)))
    n = len(x)
    power = np.abs(np.fft.rfft(x, 2 * n)) ** 2
    r = np.fft.irfft(power)[: min(n // 3, longest) + 2]
    r = r / max(r[0], 1e-12)
    peaks = [k for k in range(2, len(r) - 1) if r[k] > r[k - 1] and r[k] >= r[k + 1] and r[k] > 0.2]
    return max(peaks, key=lambda k: r[k]) if peaks else 1
