"""Decoupled look-back: programs that each have a segment of time, in Triton.

A program has ROWS parts of its segment beside each other, one for each of its warps. A part turns a
state s into A s + D; a scan over the rows tells what all parts up to each of them do. Programs of
segments one after the other are groups of ROWS · LOOKBACK. A program publishes a summary of its
segment, A and D; the last one of a group publishes the state after it. To know the state that its
segment begins with, a program reads the state after the group before its own and the summaries of
the segments between, LOOKBACK of them in each row, and scans these. Who reads what is fixed, and so
are all bits of the result.

A and D are one value of 64 bits, which is its own signal: UNPUBLISHED is a pair of NaNs that no
computation has as its result. A program waits only for programs of lower numbers, which a GPU
starts first: they need not all run at the same time. One that waits in vain (for 20 s) goes on with
NaN.
"""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

from metarnn.engines.triton.synchronization import SPIN_LIMIT

UNPUBLISHED = tl.constexpr(-1)
IDENTITY = tl.constexpr(0x3F800000 << 32)  # what leaves a state as it is: A = 1, D = 0


# A step may FORGET its state, with a = 0 (at a reset): then the state may be NaN or infinite.


@triton.jit
def affine_apply(a, s, b, FORGETS: tl.constexpr):
    """a s + b."""
    if FORGETS:
        return tl.where(a == 0, b, a * s + b)
    else:
        return a * s + b


@triton.jit
def compose(A, D, A_later, D_later):
    """What A s + D and then A_later s + D_later do together."""
    return A_later * A, A_later * D + D_later


@triton.jit
def compose_forgetting(A, D, A_later, D_later):
    return affine_apply(A_later, A, 0.0, True), affine_apply(A_later, D, D_later, True)


@triton.jit
def compose_with_prefix(A, D, P, E, A_later, D_later, P_later, E_later):
    """The same, and what all but the last of them do: P s + E."""
    return A_later * A, A_later * D + D_later, P_later * A, P_later * D + E_later


@triton.jit
def compose_with_prefix_forgetting(A, D, P, E, A_later, D_later, P_later, E_later):
    return (
        affine_apply(A_later, A, 0.0, True),
        affine_apply(A_later, D, D_later, True),
        affine_apply(P_later, A, 0.0, True),
        affine_apply(P_later, D, E_later, True),
    )


@triton.jit
def pack_pair(a, d):
    high = a.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | d.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def factor(pair):
    """A of A s + D."""
    return (pair >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def offset(pair):
    """D of A s + D."""
    return pair.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def predecessors(segment, group, segments, row, mask, ROWS: tl.constexpr, LOOKBACK: tl.constexpr):
    """The summaries that each row reads, LOOKBACK of them: their indices, and where there are any.

    The first row begins with the state after the group before: these follow all summaries.
    """
    before = group * (ROWS * LOOKBACK) + row * LOOKBACK - 1
    indices = (tl.where(row == 0, segments + group - 1, before),)
    masks = (mask & tl.where(row == 0, group > 0, before < segment),)
    for k in tl.static_range(1, LOOKBACK):
        indices += (before + k,)
        masks += (mask & (before + k < segment),)
    return indices, masks


@triton.jit
def load_summaries(ptr, indices, masks, stride, LOOKBACK: tl.constexpr):
    """What of them is published so far."""
    pairs = ()
    for k in tl.static_range(LOOKBACK):
        place = ptr + indices[k] * stride
        pairs += (tl.load(place, mask=masks[k], other=IDENTITY, volatile=True),)
    return pairs


@triton.jit
def poll_summaries(pairs, ptr, indices, masks, stride, LOOKBACK: tl.constexpr):
    """Load summaries until all are published."""
    missing = _missing(pairs, LOOKBACK)
    spins = 0
    while (missing > 0) & (spins < SPIN_LIMIT):
        pairs = load_summaries(ptr, indices, masks, stride, LOOKBACK)
        missing = _missing(pairs, LOOKBACK)
        spins += 1
    return pairs


@triton.jit
def _missing(pairs, LOOKBACK: tl.constexpr):
    missing = pairs[0] == UNPUBLISHED
    for k in tl.static_range(1, LOOKBACK):
        missing = missing | (pairs[k] == UNPUBLISHED)
    return tl.max(tl.max(missing.to(tl.int32), 1), 0)


@triton.jit
def publish_summary(
    A, D, ptr, segment, stride, row, mask, ROWS: tl.constexpr, UNITS: tl.constexpr,
    FORGETS: tl.constexpr,
):  # fmt: skip
    """Publish what the parts of a segment do together.

    Returns for each row what all parts up to it do, A s + D, and all before it, P s + E.
    """
    last = mask & (row == ROWS - 1)
    P = tl.full((ROWS, UNITS), 1.0, tl.float32)
    E = tl.zeros((ROWS, UNITS), tl.float32)
    if FORGETS:
        A, D, P, E = tl.associative_scan((A, D, P, E), 0, compose_with_prefix_forgetting)
    else:
        A, D, P, E = tl.associative_scan((A, D, P, E), 0, compose_with_prefix)
    tl.store(ptr + segment * stride, pack_pair(A, D), mask=last)
    return A, D, P, E


@triton.jit
def look_back(
    state, pairs, A, D, P, E, ptr, indices, masks, segment, group, segments, stride, row, mask,
    ROWS: tl.constexpr, UNITS: tl.constexpr, LOOKBACK: tl.constexpr, FORGETS: tl.constexpr,
):  # fmt: skip
    """The state that each row of a segment begins with, from the initial one and what precedes it.

    The last segment of a group publishes the state after it.
    """
    pairs = poll_summaries(pairs, ptr, indices, masks, stride, LOOKBACK)
    a = tl.where((row == 0) & (group == 0), 0.0, factor(pairs[0]))
    d = tl.where((row == 0) & (group == 0), state, offset(pairs[0]))
    for k in tl.static_range(1, LOOKBACK):
        if FORGETS:
            a, d = compose_forgetting(a, d, factor(pairs[k]), offset(pairs[k]))
        else:
            a, d = compose(a, d, factor(pairs[k]), offset(pairs[k]))
    if FORGETS:
        a, d = tl.associative_scan((a, d), 0, compose_forgetting)
    else:
        a, d = tl.associative_scan((a, d), 0, compose)
    state = tl.sum(tl.where(row == ROWS - 1, d, 0.0), 0)[None, :]
    if segment == (group + 1) * (ROWS * LOOKBACK) - 1:
        nothing = tl.zeros((ROWS, UNITS), tl.float32)
        tl.store(
            ptr + (segments + group) * stride,
            pack_pair(nothing, affine_apply(A, state, D, FORGETS)),
            mask=mask & (row == ROWS - 1),
        )
    return affine_apply(P, state, E, FORGETS)
