import time

from metarnn.bench import interleaved


def test_calls_take_turns_and_each_is_timed_for_all_rounds():
    seen: list[str] = []
    calls = {name: (lambda name=name: seen.append(name)) for name in "abc"}
    found = interleaved(calls, seconds=0, rounds=4, warmup=2)
    assert list(found) == ["a", "b", "c"]
    assert seen == ["a", "b", "c"] * (2 + 4)


def test_slow_calls_take_part_in_the_first_rounds_only():
    seen: list[str] = []
    calls = {name: (lambda name=name: seen.append(name)) for name in "ab"}
    interleaved(calls, seconds=0, rounds=5, slow=["b"], slow_rounds=2, warmup=0)
    assert "".join(seen) == "ababaaa"


def test_rounds_go_on_for_as_long_as_asked():
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        time.sleep(0.002)

    start = time.perf_counter()
    interleaved({"it": call}, seconds=0.05, rounds=1)
    assert time.perf_counter() - start >= 0.05
    assert count > 3


def test_the_median_is_in_milliseconds_and_forgives_an_outlier():
    waits = iter([0.0, 0.005, 0.2, 0.005])  # the first warms up
    found = interleaved({"it": lambda: time.sleep(next(waits))}, seconds=0, rounds=3)
    assert 5 <= found["it"] < 100
