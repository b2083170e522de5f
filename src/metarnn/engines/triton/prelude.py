"""What generated kernels are made of: functions of numbers, and meeting at a barrier."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

import triton
import triton.language as tl

from metarnn.engines.triton import interpreted

INTERPRETED = tl.constexpr(interpreted())
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# A barrier that nobody opens for so many looks (about 20 s) is stuck.
PATIENCE = tl.constexpr(30_000_000)


# What a GPU has one instruction for, good to 2⁻²². Triton's own functions are good to the last bit
# or two and care for the smallest numbers, in up to 20 instructions; a scan has no time for that.


@triton.jit
def exp2(x):
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return _instruction(x, "ex2.approx.ftz.f32 $0, $1;")


@triton.jit
def log2(x):
    if INTERPRETED:
        return tl.log2(x)
    else:
        return _instruction(x, "lg2.approx.ftz.f32 $0, $1;")


@triton.jit
def reciprocal(x):
    if INTERPRETED:
        return 1 / x
    else:
        return _instruction(x, "rcp.approx.ftz.f32 $0, $1;")


@triton.jit
def _instruction(x, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def exp(x):
    return exp2(x * LOG2_E)


@triton.jit
def sigmoid(x):
    return reciprocal(1 + exp(-x))


@triton.jit
def tanh(x):
    # (1 - e) / (1 + e) cancels near 0: there the series is exact to the last bit but one.
    e = exp(-2 * tl.abs(x))
    y = (1 - e) * reciprocal(1 + e)
    s = x * x
    series = x * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315))))
    return tl.where(s < 0.01, series, tl.where(x < 0, -y, y))


@triton.jit
def softplus(x):
    return tl.maximum(x, 0) + LN_2 * log2(1 + exp(-tl.abs(x)))


@triton.jit
def onward(a, s, b, FORGETS: tl.constexpr):
    """a s + b. What a step FORGETS, with a = 0, may be NaN or infinite."""
    if FORGETS:
        return tl.where(a == 0, b, a * s + b)
    else:
        return a * s + b


@triton.jit
def then(A, D, A_later, D_later):
    """What A s + D, and then A_later s + D_later do together."""
    return A_later * A, A_later * D + D_later


@triton.jit
def then_forgetting(A, D, A_later, D_later):
    return onward(A_later, A, 0.0, True), onward(A_later, D, D_later, True)


@triton.jit
def and_before(A, D, P, E, A_later, D_later, P_later, E_later):
    """The same, and what all but the last of them do: P s + E."""
    return A_later * A, A_later * D + D_later, P_later * A, P_later * D + E_later


@triton.jit
def and_before_forgetting(A, D, P, E, A_later, D_later, P_later, E_later):
    return (
        onward(A_later, A, 0.0, True),
        onward(A_later, D, D_later, True),
        onward(P_later, A, 0.0, True),
        onward(P_later, D, E_later, True),
    )


@triton.jit
def greater(a, b):
    return tl.where(a > b, 1.0, 0.0)


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def dot(x, w, low, SPLIT: tl.constexpr):
    """x w. With SPLIT, w + low is the matrix and the result is exact to float32.

    Tensor cores multiply float32 with 11 significant bits. A number is the sum of two such, up to
    its last two bits, so that three products do for one; what they leave out is below 2⁻²¹.
    """
    if SPLIT:
        most = high(x)
        small = tl.dot(most, low, input_precision="tf32")
        small = tl.dot(x - most, w, small, input_precision="tf32")
        return tl.dot(most, w, small, input_precision="tf32")
    else:
        return tl.dot(x, w, input_precision="tf32")


@triton.jit
def high(x):
    """The 11 bits of float32 that tensor cores multiply."""
    return (x.to(tl.float32).to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


# A product whose result is too small for all warps has its inner dimension cut into PARTS, one for
# each share of the warps: a batch of products, whose results are added up.


@triton.jit
def inner(CHUNK: tl.constexpr, PARTS: tl.constexpr):
    """The numbers of a piece of the inner dimension: [1, CHUNK], or [PARTS, 1, CHUNK / PARTS]."""
    if PARTS == 1:
        return tl.arange(0, CHUNK)[None, :]
    else:
        share: tl.constexpr = CHUNK // PARTS
        return (tl.arange(0, PARTS) * share)[:, None, None] + tl.arange(0, share)[None, None, :]


@triton.jit
def columns(COUNT: tl.constexpr, INNER: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr):
    """Where the weights of a piece lie that are packed column after column."""
    if PARTS == 1:
        return tl.arange(0, CHUNK)[:, None] + tl.arange(0, COUNT)[None, :] * INNER
    else:
        share: tl.constexpr = CHUNK // PARTS
        part = (tl.arange(0, PARTS) * share)[:, None, None]
        column = (tl.arange(0, COUNT) * INNER)[None, None, :]
        return part + tl.arange(0, share)[None, :, None] + column


@triton.jit
def weights(
    place,
    unit,
    block,
    over,
    BEGIN: tl.constexpr,
    END: tl.constexpr,
    FIRST: tl.constexpr,
    READ: tl.constexpr,
    WIDTH: tl.constexpr,
    ROW: tl.constexpr,
    STEP: tl.constexpr,
):
    """Weights where a layer has them, and 0 where there are none.

    Blocks BEGIN to END of a product lie one after the other, WIDTH rows each, the next row ROW
    numbers further and the next column STEP. They read READ numbers of an argument, from its number
    FIRST on.
    """
    there = (block >= BEGIN) & (block < END) & (unit < WIDTH)
    read = (over >= FIRST) & (over < FIRST + READ)
    place += ((block - BEGIN) * WIDTH + unit) * ROW + (over - FIRST) * STEP
    return tl.load(place, mask=there & read, other=0.0).to(tl.float32)


@triton.jit
def put(place, weights, low, SPLIT: tl.constexpr):
    """Store weights, with SPLIT in two numbers, whose sum they are: see `dot`."""
    if SPLIT:
        tl.store(place, high(weights))
        tl.store(place + low, weights - high(weights))
    else:
        tl.store(place, weights.to(place.dtype.element_ty))


@triton.jit
def alike(rows, PARTS: tl.constexpr):
    """Rows [BB, 1] as they are for every part."""
    if PARTS == 1:
        return rows
    else:
        return rows[None, :, :]


@triton.jit
def nothing(BB: tl.constexpr, COUNT: tl.constexpr, PARTS: tl.constexpr):
    if PARTS == 1:
        return tl.zeros((BB, COUNT), tl.float32)
    else:
        return tl.zeros((PARTS, BB, COUNT), tl.float32)


@triton.jit
def together(d, PARTS: tl.constexpr):
    if PARTS == 1:
        return d
    else:
        return tl.sum(d, 0)


@triton.jit
def split2(x, B: tl.constexpr, U: tl.constexpr, REST: tl.constexpr):
    """[B, U · 2 · REST] with the finest index last: the even and the odd part of it."""
    return tl.split(tl.reshape(x, (B, U * REST, 2)))


@triton.jit
def join2(even, odd, B: tl.constexpr, N: tl.constexpr):
    """What `split2` splits: [B, N] of two halves."""
    return tl.reshape(tl.join(even, odd), (B, N))


@triton.jit
def settled(x, place, fine, B: tl.constexpr, N: tl.constexpr):
    """The result of a product, laid out in registers as what is loaded.

    Triton would rather lay out as a product's result all that meets one, and change the layout of
    each tile that is loaded or stored, through shared memory. Not so for what went through a join
    if it meets a tile that is loaded later: here one that is all 0, of which nothing is read.
    Few results of a quick product are with every warp anyway.
    """
    few: tl.constexpr = B * N <= 128 and place.dtype.element_ty.primitive_bitwidth == 16
    if INTERPRETED or few:
        return x
    else:
        even, odd = tl.split(tl.reshape(x, (B, N // 2, 2)))
        column = tl.arange(0, N)[None, :]
        place += tl.arange(0, B)[:, None] * N + column
        never = (column >= 0) & (fine < 0)
        return join2(even, odd, B, N) + tl.load(place, mask=never, other=0.0).to(tl.float32)


# A number that is told is its own signal: its lowest bit is the turn that it is told at, which
# changes whenever a slot is used again. Who waits for it looks at the number itself. To write it,
# to wait until it is written, to tell so and to read it takes three times as long.


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
    return total, tl.reduce(late, None, _either) & 1 if TOLD else 0


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
