"""A recurrent network with weights set by hand runs a Turing machine, without error.

The tape left and right of the head is two numbers, a cell a digit in base 4: 1 for a 0, 3 for a 1
(after Siegelmann & Sontag 1992). h_{t+1} = relu(W h_t) makes a move in three steps: read, branch,
write. There is no bias: the state that is 1 stands in. The machine is the busy beaver of four
states, which halts after 107 moves and leaves 13 ones.  `python examples/turing.py [PICTURE]`
"""

import sys
from pathlib import Path

import torch

import metarnn
from metarnn.graph.files import write
from metarnn.report.grid import grid

RULES = {"A0": "1RB", "A1": "1LB", "B0": "1LA", "B1": "0LC"}
RULES |= {"C0": "1RH", "C1": "1LD", "D0": "1RD", "D1": "0RA"}
SIDES, EACH = ("left", "right"), [rule + c for rule in RULES for c in "01"]  # c: cell to the left
READ = [side + more for side in SIDES for more in ("", ">2", ">3")] + ["A'", "B'", "C'", "D'"]
WRITE = [*"ABCDH", *(f"{side} {e}" for side in SIDES for e in EACH)]
NAMES = [*READ, *EACH, "kept left", "popped left", "popped right", *WRITE]


def weights() -> torch.Tensor:
    """W, a row for each unit: what it sums up of the others."""
    W = {name: dict.fromkeys(NAMES, 0.0) for name in NAMES}
    for q in "ABCD":
        W[q + "'"][q] = 1
        for side in SIDES:  # what lies on top: 1 where the digit is 3, that is (4s - 2) - (4s - 3)
            W[side + ">2"][q], W[side + ">3"][q], W["popped " + side][q + "'"] = -2, -3, -1
    for side in SIDES:
        W["popped " + side] |= {side: 4, side + ">2": -2, side + ">3": 2}
        for e in EACH:
            W[side][f"{side} {e}"], W[side + ">2"][f"{side} {e}"] = 1, 4
            W[side + ">3"][f"{side} {e}"] = 4
    W["kept left"]["left"] = 1
    for e in EACH:
        (new, move, then), a, c = RULES[e[:2]], int(e[1]), int(e[2])
        W[e] |= {q + "'": (q == e[0]) - a - c for q in "ABCD"}  # and: each 1 that must be adds 1
        for side, bit in (("right", a), ("left", c)):
            W[e] |= {side + ">2": 2 * bit - 1, side + ">3": 1 - 2 * bit}
        W[then][e] = 1
        for side in SIDES:  # a branch that is not taken writes nothing
            W[f"{side} {e}"] |= {other: -4.0 * (other != e) for other in EACH}
        push, back = (2 * int(new) + 1) / 4, (2 * c + 1) / 4
        if move == "R":
            W[f"left {e}"] |= {"kept left": 1 / 4, e: push}
            W[f"right {e}"]["popped right"] = 1
        else:
            W[f"left {e}"]["popped left"] = 1
            W[f"right {e}"] |= {"popped right": 1 / 16, e: push / 4 + back}
    return torch.tensor([list(row.values()) for row in W.values()], dtype=torch.float64)


@torch.no_grad()
def run(moves: int) -> list[dict[str, float]]:
    """The units after each move, by name."""
    layer = metarnn.RNN(0, len(NAMES), nonlinearity="relu", bias=False).double()
    layer.weights(0)["weight_hh"].copy_(weights())
    start = torch.tensor([[float(name == "A") for name in NAMES]], dtype=torch.float64)
    y, _ = layer(None, start.unsqueeze(0), steps=3 * moves)
    return [dict(zip(NAMES, row, strict=True)) for row in y[2::3, 0].tolist()]


def tape(units: dict[str, float], side: str) -> list[int]:
    """The cells of a side, from the head on."""
    value, cells = sum(units[f"{side} {e}"] for e in EACH), []
    while value:
        cells.append(int(4 * value) // 2)
        value = 4 * value % 1
    return cells


def main(out: Path = Path("turing.svg")) -> tuple[int, int]:
    """After how many moves it halts, and how many ones it leaves."""
    found, rows, place = run(107), [], 12
    for units in found:
        taken = next(e for e in EACH if units[f"left {e}"] or units[f"right {e}"])
        place += 1 if RULES[taken[:2]][1] == "R" else -1
        left, right = tape(units, "left")[::-1], tape(units, "right")
        rows.append([0] * (place - len(left)) + left + right)
    write(out, grid(rows, "The tape of a busy beaver, move by move"))
    halted = [units["H"] for units in found].index(1)
    return halted + 1, sum(rows[halted])


if __name__ == "__main__":
    print("halts after {} moves with {} ones".format(*main(*map(Path, sys.argv[1:]))))
