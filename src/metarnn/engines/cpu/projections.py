"""Dense products around a loop, of all steps at once: before it, the drives W x + b that it reads;
after it, the gradients of all weights and of x, from the adjoints that it leaves."""

from __future__ import annotations

from collections.abc import Mapping

from metarnn.cells import Map
from metarnn.engines.codegen.statements import Comment, Statement
from metarnn.engines.cpu.arrays import Arrays
from metarnn.engines.cpu.products import plus
from metarnn.engines.cpu.statements import Call
from metarnn.engines.cpu.workspace import ArraySize
from metarnn.engines.plan import Key, LoopPlan

KC_MAX = 1024  # rows of B that are packed at once where that is all of them; if there are more,
KC = 512  # so many at a time: C is read and written again for each block
MC = 96  # rows of A that stay in the cache while the tiles of B pass
MAX_SUM = 256  # values that are summed one after the other: sums of sums err less
PRIVATE_B = 1 << 16  # elements of B that each thread packs for itself: so nobody waits
SIZES = f"""
#define KC_MAX {KC_MAX}L
#define KC {KC}L
#define MC {MC}L
#define MAX_SUM {MAX_SUM}L
#define PRIVATE_B {PRIVATE_B}L
"""
GEMM_ARGUMENTS = ("a", "b", "bias", "c", "M", "N", "K", "m_stride", "k_stride", "ldb", "transposed",
                  "ldc", "accumulate")  # fmt: skip
NR = 64  # columns of a tile, with the widest vectors
PACKED_B, THREAD_BUFFERS = ("workspace", "packed_b"), ("workspace", "thread_buffers")


class DenseProducts:
    """Statements of products, in the order in which they are asked for."""

    def __init__(self, arrays: Arrays, maps: Mapping[str, Map]) -> None:
        self.arrays, self.maps = arrays, maps
        self.statements: list[Statement] = []
        self.multiply_adds = 0  # for a step and sequence
        self.gradients: set[Key] = set()  # that are written
        self.zeroed: set[Key] = set()  # those of which only parts are: they have to begin at 0

    def linear(self, x: Key, name: str, columns: slice, *, bias: bool, y: Key) -> None:
        """y = x Wᵀ + b for columns of W."""
        m, K = self.maps[name], columns.stop - columns.start
        w = plus(self.arrays.weight(name, m), columns.start)
        b = self.arrays.bias(name, m) if bias else 0
        self._note(f"{self._title(y)} = {self._title(x)} {self._weight(name)}^T{' + b' * bias}")
        self._gemm(K, a=self._pointer(x), b=w, bias=b, c=self._pointer(y), M="T * B", N=m.outputs,
                   K=K, m_stride=K, k_stride=1, ldb=m.inputs, ldc=m.outputs)  # fmt: skip
        self.multiply_adds += m.outputs * K

    def input_gradient(self, d: Key, name: str, columns: slice, dx: Key, *, add: bool) -> None:
        """dx = d W, or dx += d W."""
        m, N = self.maps[name], columns.stop - columns.start
        w = plus(self.arrays.weight(name, m), columns.start)
        self._note(f"{self._title(dx)} {'+' * add}= {self._title(d)} {self._weight(name)}")
        self._gemm(m.outputs, a=self._pointer(d), b=w, c=self._pointer(dx), M="T * B", N=N,
                   K=m.outputs, m_stride=m.outputs, k_stride=1, ldb=m.inputs, transposed=1,
                   ldc=N, accumulate=int(add))  # fmt: skip
        self.multiply_adds += m.outputs * N

    def weight_gradient(self, d: Key, x: Key, name: str, columns: slice) -> None:
        """The gradient of columns of W: dᵀ x."""
        m, N = self.maps[name], columns.stop - columns.start
        M, key = m.outputs, ("gradient", f"weight.{name}")
        add = self._adds(("weight", name), whole=m.inputs == N)
        dw = self.arrays.array(*key, f"[{M}, {m.inputs}]")
        dw = f"({dw} ? {dw} + {columns.start} : 0)" if columns.start else dw
        self._note(f"{self._title(key)} {'+' * add}= {self._title(d)}^T {self._title(x)}")
        self._gemm(KC_MAX, a=self._pointer(d), b=self._pointer(x), c=dw, M=M, N=N, K="T * B",
                   m_stride=1, k_stride=M, ldb=N, transposed=1, ldc=m.inputs,
                   accumulate=int(add))  # fmt: skip
        self.multiply_adds += M * N

    def bias_gradient(self, d: Key, name: str) -> None:
        """The gradient of a bias: the sum of d over steps and sequences."""
        N, key = self.maps[name].outputs, ("gradient", f"bias.{name}")
        add = self._adds(("bias", name), whole=True)
        db = self.arrays.array(*key, f"[{N}]")
        self._note(f"{self._title(key)} {'+' * add}= the sum of {self._title(d)}")
        self._gemm(0, b=self._pointer(d), c=db, M=1, N=N, K="T * B", ldb=N, transposed=1,
                   ldc=N, accumulate=int(add))  # fmt: skip
        self.multiply_adds += N

    def _gemm(self, packed_rows: int, **fields: int | str) -> None:
        """Call `gemm`, which packs so many rows of B, with these `gemm_arguments`."""
        arrays = self.arrays
        columns = -(-int(fields["N"]) // NR) * NR if packed_rows else 0
        elements = (min(packed_rows, KC_MAX) + 1) * columns
        elements = max(elements, arrays.workspace.get(PACKED_B, ArraySize()).fixed)
        arrays.workspace[PACKED_B] = ArraySize(fixed=elements)
        arrays.workspace[THREAD_BUFFERS] = ArraySize(per_thread=MC * KC_MAX + PRIVATE_B)
        packed = arrays.array(*PACKED_B, "[KC + 1, N], in tiles")
        buffers = arrays.array(*THREAD_BUFFERS, "[threads, MC * KC_MAX + PRIVATE_B]")
        first, *rest = [f".{name} = {fields.get(name, 0)}" for name in GEMM_ARGUMENTS]
        literal = f"&(const gemm_arguments){{{first}", *rest[:-1], f"{rest[-1]}}}"
        arguments = ("job", "thread", "&phase", *literal, packed, buffers)
        self.statements.append(Call("job->linalg->gemm", arguments))

    def _adds(self, key: Key, *, whole: bool) -> bool:
        """Whether a part of a gradient is added to what is there."""
        if key not in self.gradients and not whole:
            self.zeroed.add(key)
        add = key in self.gradients or not whole
        self.gradients.add(key)
        return add

    def _note(self, text: str) -> None:
        self.statements.append(Comment(text))

    def _pointer(self, key: Key) -> str:
        return self.arrays.array(*key)

    def _title(self, key: Key) -> str:
        return self.arrays.titles[key].lower()

    def _weight(self, name: str) -> str:
        return f"W_{self.arrays.names.map(name)}"


def no_projections(arrays: Arrays) -> DenseProducts:
    return DenseProducts(arrays, {})


def input_projections(plan: LoopPlan, arrays: Arrays) -> DenseProducts:
    """What a loop reads of x."""
    products = DenseProducts(arrays, plan.parts.full.maps)
    x = _input(plan, arrays)
    for key, node in plan.projections:
        columns = slice(node["start"], node["stop"])
        products.linear(x, node["map"], columns, bias=node["bias"], y=key)
    return products


def all_gradients(plan: LoopPlan, arrays: Arrays) -> DenseProducts:
    """The gradients of all maps and of x, from what a reverse loop puts out."""
    products = DenseProducts(arrays, plan.parts.full.maps)
    outputs = arrays.graph.outputs

    def output(name: str) -> Key:
        return "output", arrays.aliases.get(name, name)

    for i, product in enumerate(plan.products):
        if f"dproduct.{i}" in outputs:
            d = output(f"dproduct.{i}")
            if product.state is None:
                argument = output(f"argument.{i}")
            else:  # the state before each step is all of its history but the last
                argument = ("input", f"before.{product.state}")
                arrays.array(*argument, f"[T + 1, B, {product.stop - product.start}]")
            products.weight_gradient(d, argument, product.map, product.columns)
            if product.bias:
                products.bias_gradient(d, product.map)
    x, dx = _input(plan, arrays), ("gradient", "input.x")
    arrays.array(*dx, arrays.shapes["input", "x"])
    added = "dinput.x" in outputs  # by the loop, in the same array
    for (_, name), node in plan.projections:
        if f"dinput.{name}" in outputs:
            d, columns = output(f"dinput.{name}"), slice(node["start"], node["stop"])
            products.input_gradient(d, node["map"], columns, dx, add=added)
            products.weight_gradient(d, x, node["map"], columns)
            if node["bias"]:
                products.bias_gradient(d, node["map"])
            added = True
            products.gradients.add(("input", "x"))
    return products


def _input(plan: LoopPlan, arrays: Arrays) -> Key:
    graph = plan.parts.full
    arrays.array("input", "x", f"[T, B, {graph.nodes[graph.named('input')['x']].width}]")
    return "input", "x"
