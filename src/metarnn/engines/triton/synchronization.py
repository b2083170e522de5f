"""How programs of a kernel exchange values: mailboxes, partial sums and a barrier, in Triton."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

# A program that polls so often in vain (about 20 s) clears `ok`, and waits for nothing from then
# on: the kernel ends, and sets the timeout flag.
SPIN_LIMIT = tl.constexpr(30_000_000)


# Mailboxes. A published value is its own signal: its lowest bit is the parity of its slot, which
# changes whenever the slot is used again. A reader polls the value itself: one trip to L2, where a
# barrier takes three, to write the value, to see that it is there, to read it.


@triton.jit
def parity(step, DEPTH: tl.constexpr):
    """The lowest bit of values published for a step. A clear slot has 0, the first value 1."""
    return tl.full((), 1, tl.int32) - step // DEPTH % 2


@triton.jit
def with_parity(x, bit):
    """x with this lowest bit."""
    return ((x.to(tl.int32, bitcast=True) & -2) | bit).to(tl.float32, bitcast=True)


@triton.jit
def publish(ptr, x, mask, bit):
    """Store values that other programs poll."""
    tl.store(ptr, with_parity(x.to(tl.float32), bit), mask=mask, cache_modifier=".cg")


@triton.jit
def poll(ptr, mask, bit, ok):
    """Load published values, once all have arrived. Returns them and `ok`, cleared on timeout."""
    x, missing = _load_published(ptr, mask, bit)
    spins = 0
    while (missing > 0) & (spins < SPIN_LIMIT * ok):
        x, missing = _load_published(ptr, mask, bit)
        spins += 1
    return with_parity(x, 0), tl.where(missing > 0, 0, ok)


@triton.jit
def _load_published(ptr, mask, bit):
    x = tl.load(ptr, mask=mask, other=bit.to(tl.float32, bitcast=True), volatile=True)
    return x, tl.reduce(x.to(tl.int32, bitcast=True) ^ bit, None, _or) & 1


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def poll_or_load(ptr, mask, bit, ok, PUBLISHED: tl.constexpr):
    """Values of other programs: published ones, or what they stored before a barrier."""
    if PUBLISHED:
        return poll(ptr, mask, bit, ok)
    else:
        return tl.load(ptr, mask=mask, other=0.0, cache_modifier=".cg"), ok


@triton.jit
def clear_mailbox(
    ptr, B, row, units, mask, WIDTH: tl.constexpr, START: tl.constexpr, BLOCK_B: tl.constexpr,
    UNITS: tl.constexpr, FIRST: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Mark values of this program as not there yet, in slots FIRST and following."""
    for slot in tl.static_range(FIRST, DEPTH):
        place = ptr + slot * B * WIDTH + row * WIDTH + START + units
        tl.store(place, tl.zeros((BLOCK_B, UNITS), tl.float32), mask=mask)


# Partial sums [receivers, PROGRAMS, BLOCK_B, COLUMNS]: each program writes its part of what every
# receiver needs, and each receiver adds up all parts.


@triton.jit
def clear_partials(
    ptr, program, PROGRAMS: tl.constexpr, RECEIVERS: tl.constexpr, BLOCK_B: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mark this program's parts of all sums of two steps as not there yet."""
    row, column = tl.arange(0, BLOCK_B)[:, None], tl.arange(0, COLUMNS)[None, :]
    ptr += program * (BLOCK_B * COLUMNS) + row * COLUMNS + column
    for receiver in range(2 * RECEIVERS):
        zeros = tl.zeros((BLOCK_B, COLUMNS), tl.float32)
        tl.store(ptr + receiver * (PROGRAMS * BLOCK_B * COLUMNS), zeros)


@triton.jit
def scatter_partials(
    ptr, sums, first, program, rows, bit, PROGRAMS: tl.constexpr, RECEIVERS: tl.constexpr,
    COLUMNS: tl.constexpr, PUBLISH: tl.constexpr,
):  # fmt: skip
    """Give this program's part of columns `first` and following to the programs that need them."""
    if PUBLISH:
        sums = with_parity(sums, bit)
    BLOCK_B: tl.constexpr = sums.shape[0]
    # In the order in which they lie in memory, so that whole lines of it are written at once.
    COUNT: tl.constexpr = sums.shape[1] // COLUMNS
    sums = tl.permute(tl.reshape(sums, (BLOCK_B, COUNT, COLUMNS)), (1, 0, 2))
    receiver = first // COLUMNS + tl.arange(0, COUNT)[:, None, None]
    row = tl.arange(0, BLOCK_B)[None, :, None]
    cell = row * COLUMNS + tl.arange(0, COLUMNS)[None, None, :]
    ptr += (receiver * PROGRAMS + program) * (BLOCK_B * COLUMNS) + cell
    tl.store(ptr, sums, mask=(receiver < RECEIVERS) & (row < rows), cache_modifier=".cg")


@triton.jit
def reduce_partials(
    ptr, rows, bit, ok, PROGRAMS: tl.constexpr, BLOCK_B: tl.constexpr, COLUMNS: tl.constexpr,
    PARTS: tl.constexpr, PUBLISHED: tl.constexpr,
):  # fmt: skip
    """Add up the parts of all programs, in their order, PARTS of them at once. Returns the sums and
    `ok`, cleared on timeout."""
    ptr += tl.arange(0, BLOCK_B)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total, missing = _add_partials(ptr, rows, bit, PROGRAMS, BLOCK_B, COLUMNS, PARTS, PUBLISHED)
    if PUBLISHED:
        spins = 0
        while (missing > 0) & (spins < SPIN_LIMIT * ok):
            total, missing = _add_partials(
                ptr, rows, bit, PROGRAMS, BLOCK_B, COLUMNS, PARTS, PUBLISHED
            )
            spins += 1
        ok = tl.where(missing > 0, 0, ok)
    return total, ok


@triton.jit
def _add_partials(
    ptr, rows, bit, PROGRAMS: tl.constexpr, BLOCK_B: tl.constexpr, COLUMNS: tl.constexpr,
    PARTS: tl.constexpr, PUBLISHED: tl.constexpr,
):  # fmt: skip
    """The sum of what is there, and whether anything is missing."""
    total = tl.zeros((BLOCK_B, COLUMNS), tl.float32)
    missing = tl.zeros((BLOCK_B, COLUMNS), tl.int32)
    mask = tl.arange(0, BLOCK_B)[:, None] < rows
    for first in range(0, PROGRAMS - PROGRAMS % PARTS, PARTS):
        for part in tl.static_range(PARTS):
            x, late = _load_partial(
                ptr + (first + part) * (BLOCK_B * COLUMNS), mask, bit, PUBLISHED
            )
            total, missing = total + x, missing | late
    for part in tl.static_range(PROGRAMS - PROGRAMS % PARTS, PROGRAMS):
        x, late = _load_partial(ptr + part * (BLOCK_B * COLUMNS), mask, bit, PUBLISHED)
        total, missing = total + x, missing | late
    return total, tl.reduce(missing, None, _or) & 1 if PUBLISHED else tl.full((), 0, tl.int32)


@triton.jit
def _load_partial(ptr, mask, bit, PUBLISHED: tl.constexpr):
    if PUBLISHED:
        x = tl.load(ptr, mask=mask, other=bit.to(tl.float32, bitcast=True), volatile=True)
        return with_parity(x, 0), x.to(tl.int32, bitcast=True) ^ bit
    else:
        x = tl.load(ptr, mask=mask, other=0.0, cache_modifier=".cg")
        return x, tl.zeros_like(x).to(tl.int32)


# A barrier among the programs of a group: each arrives, and waits until the counter says that all
# have. A SINGLE program waits for nobody.


@triton.jit
def barrier_arrive(counter, SINGLE: tl.constexpr):
    tl.debug_barrier()  # all stores of this program's threads come first
    if not SINGLE:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def barrier_wait(counter, target, ok, SINGLE: tl.constexpr):
    """Wait until so many programs have arrived. Returns `ok`, cleared on timeout."""
    if not SINGLE:
        spins = 0
        arrived = _load_acquire(counter)
        while (arrived < target) & (spins < SPIN_LIMIT * ok):
            arrived = _load_acquire(counter)
            spins += 1
        ok = tl.where(arrived < target, 0, ok)
    return ok


@triton.jit
def barrier_reset(counter, PROGRAMS: tl.constexpr, SINGLE: tl.constexpr):
    """Set the counters back to zero, in the last program of a group that gets here."""
    if not SINGLE:
        tl.debug_barrier()  # none of this program's threads still reads the counter
        if tl.atomic_add(counter + 1, 1) == PROGRAMS - 1:
            tl.store(counter, 0)
            tl.store(counter + 1, 0)


@triton.jit
def _load_acquire(counter):
    # An atomic would do, but many of them at one address queue up; a load with acquire does not.
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];",
        "=r,l",
        [counter],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
