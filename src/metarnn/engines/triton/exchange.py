"""How programs of a kernel hear of one another's numbers: told, handed out, or met for."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

# Who looks so many times in vain (about 20 s) gives up.
PATIENCE = tl.constexpr(30_000_000)


# A number that is told is its own signal: its lowest bit is the turn that it is told at, which
# changes whenever a slot is used again. Who waits for it looks at the number itself: one trip to
# the second-level cache, not one to write it, one to look whether it is there, one to read it.


@triton.jit
def turn(s, SLOTS: tl.constexpr):
    """The bit of numbers of step s. In the beginning it is 0 in all slots, and nothing is told."""
    return tl.full((), 1, tl.int32) - s // SLOTS % 2


@triton.jit
def told(x, bit):
    return ((x.to(tl.int32, bitcast=True) & -2) | bit).to(tl.float32, bitcast=True)


@triton.jit
def tell(place, x, mask, bit):
    tl.store(place, told(x.to(tl.float32), bit), mask=mask, cache_modifier=".cg")


@triton.jit
def heard(place, mask, bit, fine):
    """What others tell, as soon as all of it is there; and 0 from then on if it never is."""
    x, late = _listen(place, mask, bit)
    looks = 0
    while (late > 0) & (looks < PATIENCE * fine):
        x, late = _listen(place, mask, bit)
        looks += 1
    return told(x, 0), tl.where(late > 0, 0, fine)


@triton.jit
def _listen(place, mask, bit):
    x = tl.load(place, mask=mask, other=bit.to(tl.float32, bitcast=True), volatile=True)
    return x, tl.reduce(x.to(tl.int32, bitcast=True) ^ bit, None, _either) & 1


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def read(place, mask, bit, fine, TOLD: tl.constexpr):
    """Numbers that others have written, or tell."""
    if TOLD:
        return heard(place, mask, bit, fine)
    else:
        return tl.load(place, mask=mask, other=0.0, cache_modifier=".cg"), fine


# Sums that all programs have a part of: [who needs them, who has a part of them, rows, columns].


@triton.jit
def untold(place, me, P: tl.constexpr, TAKERS: tl.constexpr, BB: tl.constexpr, N: tl.constexpr):
    """Have this program's part of all sums of two steps say that it is not there yet."""
    place += me * (BB * N) + tl.arange(0, BB)[:, None] * N + tl.arange(0, N)[None, :]
    for taker in range(2 * TAKERS):
        tl.store(place + taker * (P * BB * N), tl.zeros((BB, N), tl.float32))


@triton.jit
def hand_out(
    place, sums, first, me, rows, bit, P: tl.constexpr, TAKERS: tl.constexpr, COLUMNS: tl.constexpr,
    TOLD: tl.constexpr,
):  # fmt: skip
    """Give this program's part of columns `first` and following to those who need them: of so many
    rows."""
    if TOLD:
        sums = told(sums, bit)
    BB: tl.constexpr = sums.shape[0]
    # In the order in which they lie in memory, so that whole lines of it are written at once.
    COUNT: tl.constexpr = sums.shape[1] // COLUMNS
    sums = tl.permute(tl.reshape(sums, (BB, COUNT, COLUMNS)), (1, 0, 2))
    taker = first // COLUMNS + tl.arange(0, COUNT)[:, None, None]
    row = tl.arange(0, BB)[None, :, None]
    cell = row * COLUMNS + tl.arange(0, COLUMNS)[None, None, :]
    place += (taker * P + me) * (BB * COLUMNS) + cell
    tl.store(place, sums, mask=(taker < TAKERS) & (row < rows), cache_modifier=".cg")


@triton.jit
def collect(
    place, rows, bit, fine, P: tl.constexpr, BB: tl.constexpr, COLUMNS: tl.constexpr,
    AT_ONCE: tl.constexpr, TOLD: tl.constexpr,
):  # fmt: skip
    """Add up what all programs give, in their order: see `heard`."""
    place += tl.arange(0, BB)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total, late = _added(place, rows, bit, P, BB, COLUMNS, AT_ONCE, TOLD)
    if TOLD:
        looks = 0
        while (late > 0) & (looks < PATIENCE * fine):
            total, late = _added(place, rows, bit, P, BB, COLUMNS, AT_ONCE, TOLD)
            looks += 1
        fine = tl.where(late > 0, 0, fine)
    return total, fine


@triton.jit
def _added(
    place, rows, bit, P: tl.constexpr, BB: tl.constexpr, COLUMNS: tl.constexpr,
    AT_ONCE: tl.constexpr, TOLD: tl.constexpr,
):  # fmt: skip
    """The sum of what is given, and whether anything is not there yet."""
    total = tl.zeros((BB, COLUMNS), tl.float32)
    late = tl.zeros((BB, COLUMNS), tl.int32)
    there = tl.arange(0, BB)[:, None] < rows
    for first in range(0, P - P % AT_ONCE, AT_ONCE):
        for part in tl.static_range(AT_ONCE):
            x, odd = _given(place + (first + part) * (BB * COLUMNS), there, bit, TOLD)
            total, late = total + x, late | odd
    for part in tl.static_range(P - P % AT_ONCE, P):
        x, odd = _given(place + part * (BB * COLUMNS), there, bit, TOLD)
        total, late = total + x, late | odd
    return total, tl.reduce(late, None, _either) & 1 if TOLD else tl.full((), 0, tl.int32)


@triton.jit
def _given(place, there, bit, TOLD: tl.constexpr):
    if TOLD:
        x = tl.load(place, mask=there, other=bit.to(tl.float32, bitcast=True), volatile=True)
        return told(x, 0), x.to(tl.int32, bitcast=True) ^ bit
    else:
        x = tl.load(place, mask=there, other=0.0, cache_modifier=".cg")
        return x, tl.zeros_like(x).to(tl.int32)


@triton.jit
def arrive(counter, ALONE: tl.constexpr):
    tl.debug_barrier()  # all of this program's stores come before the one that tells of them
    if not ALONE:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def wait(counter, target, fine, ALONE: tl.constexpr):
    """Wait until so many programs have arrived; 0 from then on if they never do."""
    if not ALONE:
        looks = 0
        seen = _look(counter)
        while (seen < target) & (looks < PATIENCE * fine):
            seen = _look(counter)
            looks += 1
        fine = tl.where(seen < target, 0, fine)
    return fine


@triton.jit
def leave(counter, P: tl.constexpr, ALONE: tl.constexpr):
    """The last program of a group to come here sets its counters back to zero."""
    if not ALONE:
        tl.debug_barrier()  # none of this program's threads still looks at the counter
        if tl.atomic_add(counter + 1, 1) == P - 1:
            tl.store(counter, 0)
            tl.store(counter + 1, 0)


@triton.jit
def _look(counter):
    # An atomic would do, but many of them at one address queue up; a load with acquire does not.
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];",
        "=r,l",
        [counter],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
