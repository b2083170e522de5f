"""Products on tensor cores, and the weights that they read, in Triton."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

import triton
import triton.language as tl

from metarnn.engines.triton.engine import interpreted

INTERPRETED = tl.constexpr(interpreted())


@triton.jit
def dot(x, w, w_low, SPLIT_FP32: tl.constexpr):
    """x w. With SPLIT_FP32, w + w_low is the matrix and the result is exact to float32 (3xTF32).

    Tensor cores multiply float32 with 11 significant bits. A value is the sum of two such, up to
    its last two bits, so that three products do for one; what they leave out is below 2⁻²¹.
    """
    if SPLIT_FP32:
        x_high = leading_bits(x)
        low = tl.dot(x_high, w_low, input_precision="tf32")
        low = tl.dot(x - x_high, w, low, input_precision="tf32")
        return tl.dot(x_high, w, low, input_precision="tf32")
    else:
        return tl.dot(x, w, input_precision="tf32")


@triton.jit
def leading_bits(x):
    """The 11 bits of float32 that tensor cores multiply."""
    return (x.to(tl.float32).to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


# Weights are packed [programs, columns, inner], and read in pieces of CHUNK of the inner dimension.
# A product whose result is too small for all warps has the piece cut into PARTS, one for each share
# of the warps: a batch of products, whose results are reduced.


@triton.jit
def inner_offsets(CHUNK: tl.constexpr, PARTS: tl.constexpr):
    """The elements of a piece: [1, CHUNK], or [PARTS, 1, CHUNK / PARTS]."""
    if PARTS == 1:
        return tl.arange(0, CHUNK)[None, :]
    else:
        share: tl.constexpr = CHUNK // PARTS
        return (tl.arange(0, PARTS) * share)[:, None, None] + tl.arange(0, share)[None, None, :]


@triton.jit
def weight_offsets(
    COLUMNS: tl.constexpr, INNER: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr
):
    """Where the packed weights of a piece lie: [CHUNK, COLUMNS], or with PARTS in front."""
    if PARTS == 1:
        return tl.arange(0, CHUNK)[:, None] + tl.arange(0, COLUMNS)[None, :] * INNER
    else:
        share: tl.constexpr = CHUNK // PARTS
        part = (tl.arange(0, PARTS) * share)[:, None, None]
        column = (tl.arange(0, COLUMNS) * INNER)[None, None, :]
        return part + tl.arange(0, share)[None, :, None] + column


@triton.jit
def expand(rows, PARTS: tl.constexpr):
    """Rows [BLOCK_B, 1] as every part reads them."""
    if PARTS == 1:
        return rows
    else:
        return rows[None, :, :]


@triton.jit
def zeros(BLOCK_B: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    if PARTS == 1:
        return tl.zeros((BLOCK_B, COLUMNS), tl.float32)
    else:
        return tl.zeros((PARTS, BLOCK_B, COLUMNS), tl.float32)


@triton.jit
def reduce(acc, PARTS: tl.constexpr):
    """The sum of the results of all parts."""
    if PARTS == 1:
        return acc
    else:
        return tl.sum(acc, 0)


@triton.jit
def load_weights(
    ptr, unit, block, inner, BEGIN: tl.constexpr, END: tl.constexpr, FIRST: tl.constexpr,
    READS: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr, COLUMN: tl.constexpr,
):  # fmt: skip
    """Weights of some units, where the layer has them; 0 where there are none.

    Blocks BEGIN to END of a product lie one after the other, of WIDTH rows each; ROW and COLUMN are
    the strides. They read READS elements of an argument, from element FIRST on.
    """
    row_mask = (block >= BEGIN) & (block < END) & (unit < WIDTH)
    column_mask = (inner >= FIRST) & (inner < FIRST + READS)
    ptr += ((block - BEGIN) * WIDTH + unit) * ROW + (inner - FIRST) * COLUMN
    return tl.load(ptr, mask=row_mask & column_mask, other=0.0).to(tl.float32)


@triton.jit
def store_weights(ptr, weights, low_offset, SPLIT_FP32: tl.constexpr):
    """Store packed weights, with SPLIT_FP32 in two parts, whose sum they are: see `dot`."""
    if SPLIT_FP32:
        tl.store(ptr, leading_bits(weights))
        tl.store(ptr + low_offset, weights - leading_bits(weights))
    else:
        tl.store(ptr, weights.to(ptr.dtype.element_ty))


@triton.jit
def split_blocks(acc, BLOCK_B: tl.constexpr, UNITS: tl.constexpr, REST: tl.constexpr):
    """[BLOCK_B, UNITS · REST · 2], the last index the finest: its even and its odd part."""
    return tl.split(tl.reshape(acc, (BLOCK_B, UNITS * REST, 2)))


@triton.jit
def join_blocks(even, odd, BLOCK_B: tl.constexpr, COLUMNS: tl.constexpr):
    """What `split_blocks` splits: [BLOCK_B, COLUMNS] of two halves."""
    return tl.reshape(tl.join(even, odd), (BLOCK_B, COLUMNS))


@triton.jit
def convert_layout(acc, ptr, ok, BLOCK_B: tl.constexpr, COLUMNS: tl.constexpr):
    """The result of a product, in registers laid out as what is loaded.

    Triton would rather lay out as a product's result all that it is combined with, and convert each
    tile that is loaded or stored, through shared memory. Not so for the result of a join that is
    combined with a tile loaded later: here one of zeros, of which nothing is read.
    Every warp has few results of a product of two-byte weights anyway.
    """
    FEW: tl.constexpr = BLOCK_B * COLUMNS <= 128 and ptr.dtype.element_ty.primitive_bitwidth == 16
    if INTERPRETED or FEW:
        return acc
    else:
        even, odd = tl.split(tl.reshape(acc, (BLOCK_B, COLUMNS // 2, 2)))
        column = tl.arange(0, COLUMNS)[None, :]
        ptr += tl.arange(0, BLOCK_B)[:, None] * COLUMNS + column
        never = (column >= 0) & (ok < 0)
        acc = join_blocks(even, odd, BLOCK_B, COLUMNS)
        return acc + tl.load(ptr, mask=never, other=0.0).to(tl.float32)
