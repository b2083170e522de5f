"""What generated kernels are made of, beyond operations: products, and steps of a scan."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

import triton
import triton.language as tl

from metarnn.engines.triton.engine import interpreted

INTERPRETED = tl.constexpr(interpreted())


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
