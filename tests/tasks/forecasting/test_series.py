"""Files of series: dates, gaps, covariates, splits, windows."""

import numpy as np
import pytest

from metarnn.tasks.forecasting import Frequency, borders, from_array, load, make_scheme, read_csv
from metarnn.tasks.forecasting.dates import frequency, parse
from metarnn.tasks.forecasting.windows import Windows


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["2016-07-01 00:00:00", "2016-07-01 01:00:00", "2016-07-01 03:00:00"], "hour"),
        (["2020-01-31", "2020-02-01", "2020-02-02"], "day"),
        (["1749-01", "1749-02", "1749-03"], "month"),
        (["1700", "1701", "1702"], "year"),
        (["31.12.2020", "07.01.2021", "14.01.2021"], "week"),
        (["20201230", "20201231", "20210101"], "day"),
        (["2020-01-31", "2020-02-29", "2020-03-31", "2020-04-30"], "month"),
        (["1/1/2011 0:00", "1/1/2011 1:00", "1/1/2011 2:00"], "hour"),
        (["1/1/19 11:00 PM", "1/2/19 12:00 AM", "1/2/19 1:00 AM"], "hour"),
        (["01/12/2020", "01/13/2020", "01/14/2020"], "day"),
        (["13/01/2020", "14/01/2020", "15/01/2020"], "day"),
        (["01/01/2020", "02/01/2020", "03/01/2020", "01/01/2021"], "day"),
        (["11/01/2020", "12/01/2020", "01/01/2021", "02/01/2021"], "month"),
        (["2019Q3", "2019Q4", "2020Q1"], "quarter"),
        (["Jan 2020", "Feb 2020", "Mar 2020"], "month"),
        (["30-Dec-20", "31-Dec-20", "1-Jan-21"], "day"),
        (["March 7, 2020", "March 14, 2020", "March 21, 2020"], "week"),
        (["2020-03-29 01:00:00+01:00", "2020-03-29 03:00:00+02:00"], "hour"),
        (["2020/01/01 00:00", "2020/01/01 00:15", "2020/01/01 00:30"], "15 minutes"),
    ],
)
def test_the_step_is_found(texts, name):
    dates = parse(texts)
    assert dates is not None
    assert frequency(dates).name == name


def test_the_next_dates_follow_the_calendar():
    after = Frequency(months=1).after(np.datetime64("2020-12-01T06:00:00"), 2)
    assert [str(d) for d in after] == ["2021-01-01T06:00:00", "2021-02-01T06:00:00"]


def test_the_end_of_a_month_is_followed_by_the_end_of_the_next():
    after = Frequency(months=1).after(np.datetime64("2021-01-31T00:00:00"), 3)
    assert [str(d)[:10] for d in after] == ["2021-02-28", "2021-03-31", "2021-04-30"]


def test_rows_may_come_newest_first(tmp_path):
    rows = [f"2020-01-{d:02},{d}" for d in range(1, 10)]
    panel = read_csv(write(tmp_path / "t.csv", "\n".join(["date,a", *rows[::-1]])))
    assert panel.series[0].values[:, 0].tolist() == list(range(1, 10))


def test_a_german_table_is_read_as_it_is_meant(tmp_path):
    text = "\ufeffTag;Umsatz;Anteil\r\n1.2.2020;1.250,5;0,25\r\n2.2.2020;990;1\r\n"
    a, b = read_csv(write(tmp_path / "t.csv", text)).series
    assert a.start == np.datetime64("2020-02-01")
    assert (a.values[:, 0].tolist(), b.values[:, 0].tolist()) == ([1250.5, 990], [0.25, 1])


def test_commas_between_thousands_are_no_decimals(tmp_path):
    text = 'date,price\n2020-01-01,"1,234.50"\n2020-01-02,"12,345"\n2020-01-03,7\n'
    (price,) = read_csv(write(tmp_path / "t.csv", text)).series
    assert price.values[:, 0].tolist() == [1234.5, 12345, 7]


def test_gaps_are_reported_and_the_last_value_stands_in(tmp_path):
    text = "date,a,b\n2020-01-01,1,10\n2020-01-02,2,\n2020-01-04,4,40\n2020-01-05,5,50\n"
    panel = read_csv(write(tmp_path / "t.csv", text))
    a, b = panel.series
    assert (a.name, b.name, len(a)) == ("a", "b", 5)
    assert np.isnan(a.values[2, 0])
    assert any("1 steps are missing" in note for note in panel.notes)
    assert any("1 values are missing" in note for note in panel.notes)
    windows = Windows(panel, make_scheme(panel, 1, 2, "60/20/20"), "60/20/20")
    scale = np.array(windows.scheme.std), np.array(windows.scheme.mean)
    seen = windows.seen.numpy().reshape(2, 5) * scale[0] + scale[1]
    np.testing.assert_allclose(seen, [[1, 2, 2, 4, 5], [10, 10, 10, 40, 50]], rtol=1e-6)


def test_covariates_reach_into_the_future_and_series_stand_below_one_another(tmp_path):
    text = "day,shop,kind,sale,price,sold\n" + "".join(
        f"2020-01-{d:02},{shop},{kind},{d % 2},{d},{'' if d > 8 else d * 10}\n"
        for shop, kind in (("x", "big"), ("y", "small"))
        for d in range(1, 11)
    )
    panel = read_csv(
        write(tmp_path / "t.csv", text),
        known=["sale"], observed=["price"], static=["kind"], series="shop",
    )  # fmt: skip
    x, y = panel.series
    assert (x.name, y.name, panel.channels) == ("x", "y", ("sold",))
    assert (len(x), len(x.known), len(x.observed)) == (8, 10, 8)
    assert panel.static.tolist() == [[1, 0], [0, 1]]


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="sunspots"):
        load("nowhere.csv")
    bad = write(tmp_path / "t.csv", "date,a\n2020-01-02,1\n2020-01-02,2\n2020-01-03,2\n")
    with pytest.raises(ValueError, match="more than once"):
        read_csv(bad)
    word = write(tmp_path / "t.csv", "date,a\n2020-01-01,1\n2020-01-02,two\n")
    with pytest.raises(ValueError, match="'two' is no number"):
        read_csv(word)
    with pytest.raises(ValueError, match="column='b'"):
        read_csv(word, targets=["b"])


def test_the_usual_split_of_ett():
    found = borders(17420, "12m/4m/4m", Frequency(3600))
    assert found == {"train": (0, 8640), "valid": (8640, 11520), "test": (11520, 14400)}
    assert found == borders(17420, "8640/2880/2880", Frequency())
    with pytest.raises(ValueError, match="at most"):
        borders(100, "80/20/20", Frequency())


def test_no_target_of_a_window_lies_in_another_split():
    panel = from_array(np.arange(100.0)[:, None], ["a"])
    windows = Windows(panel, make_scheme(panel, 5, 10), "70/10/20")
    ends = {"train": (10, 70), "valid": (70, 80), "test": (80, 100)}
    mean, std = windows.scheme.mean[0][0], windows.scheme.std[0][0]
    for split, (start, end) in ends.items():
        window = windows.at(windows.origins(split))
        y = window.y.squeeze(-1).numpy() * std + mean
        x = window.x.squeeze(-1).numpy() * std + mean
        assert (y.min().round(), y.max().round()) == (start, end - 1)
        np.testing.assert_allclose(x[-1] + 1, y[0], atol=1e-4)  # seen right up to the origin
        assert len(x[0]) == end - start - 4
    np.testing.assert_allclose(mean, np.arange(70).mean())  # scaled by the training part alone
