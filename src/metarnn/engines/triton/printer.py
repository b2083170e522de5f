"""Statements as Triton."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.printer import Printer
from metarnn.engines.triton import product_text, program
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, Index, Lanes, StepUnits, Tile
from metarnn.engines.triton.program import next_power_of_2, padded
from metarnn.graph import Node
from metarnn.graph.ops import OPS

FLOAT = ".to(tl.float32)"


class TritonPrinter(Printer):
    comment = "#"

    def constant(self, value: float) -> str:
        if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        return repr(float(value))

    def loop(self, loop: s.For) -> str:
        if isinstance(loop, t.SequentialFor):
            return f"for {loop.variable} in tl.range({loop.stop}, num_stages=1):"
        bounds = [loop.start, loop.stop, *([loop.step] if loop.step != "1" else [])]
        return f"for {loop.variable} in range({', '.join(bounds)}):"

    def condition(self, text: str, otherwise: bool) -> str:
        return "else:" if otherwise else f"if {text}:"

    def block(self, head: str, body: s.Block) -> Iterator[str]:
        yield head
        yield from self.indented(body)

    def statement(self, statement: s.Statement) -> Iterator[str]:
        match statement:
            case s.Let(name, expression, args):
                text = expression.format(*map(self.operand, args)) if args else expression
                yield f"{name} = {text}"
            case s.Elementwise(target, node, args):
                yield f"{target.name} = {self.elementwise(node, args)}"
            case t.RawLoad(target, address, zeroed):
                yield f"{target.name} = {self.load(address, zeroed)}"
            case s.Load(target, address):
                yield f"{target.name} = {self.load(address)}{FLOAT}"
            case s.Store(address, value):
                yield self.store(address, value)
            case s.Accumulate(s.Value(name), value):
                yield f"{name} += {self.operand(value)}"
            case s.Accumulate(Elements() as e, value):
                sum = f"tl.load({e.pointer}{e.mask}) + {self.operand(value)}"
                yield f"tl.store({e.pointer}, {sum}{e.mask})"
            case s.Barrier():
                yield "tl.debug_barrier()"
            case t.Broadcast(target, value, tile):
                yield f"{target.name} = {self.broadcast(value, tile)}"
            case t.RowOperation(target, node, argument, width):
                yield from self.row_operation(target.name, node, self.operand(argument), width)
            case t.Rearrange(target, node, address, width):
                yield f"{target.name} = {self.rearranged(node, address, width)}"
            case t.PackWeights():
                yield from product_text.pack_weights(statement)
            case t.Dot(group, row, tile, packed):
                full = self.broadcast(row, tile)
                if padded(tile.width) != tile.width:
                    full = f"tl.where(inside_{tile.suffix}, {full}, 0.0)"
                yield f"acc_{group.name} = {product_text.dot(group, f'{full}.to(DOT_DTYPE)')}"
                yield from product_text.convert_layout(group, packed)
            case t.Products():
                yield from product_text.products(statement)
            case t.SplitBlocks(even, odd, source, tile, count):
                halves = f"split_blocks({source}, BLOCK_B, UNITS_{tile.suffix}, {count})"
                yield f"{even}, {odd} = {halves}"
            case t.ScatterPartials(group, tiles, array):
                own = [self.broadcast(value, Tile(group.tile_width)) for value in tiles]
                yield from product_text.scatter_partials(group, array, own)
            case t.ClearPartials(group, array):
                yield from product_text.clear_partials(group, array)
            case t.Publish(e, value, step):
                tile, mask = self.broadcast(value, e.index), e.index.mask(e.shared, own=True)
                bit = f"parity({step}, {program.MAILBOX_DEPTH})"
                yield f"publish({e.pointer}, {tile}, {mask}, {bit})"
            case t.ClearMailbox(e, tile, first):
                rows = (
                    f"B, row, {tile.offset}, {tile.mask(e.shared, own=True)}, {e.width}, {e.start}"
                )
                slots = f"BLOCK_B, UNITS_{tile.suffix}, {first}, {program.MAILBOX_DEPTH}"
                yield f"clear_mailbox({e.array}, {rows}, {slots})"
            case t.BarrierArrive(unless):
                yield f"barrier_arrive(counter, {unless})"
                yield "arrivals += PROGRAMS"
            case t.BarrierWait(unless):
                yield f"ok = barrier_wait(counter, arrivals, ok, {unless})"
            case _:
                raise TypeError(f"no Triton for {statement}")

    # Values -------------------------------------------------------------------------------

    def elementwise(self, node: Node, args: tuple[s.Operand, ...]) -> str:
        op, attributes = OPS[node.op], node.attributes
        constants = [a.value for a in args if isinstance(a, s.Constant)]
        if len(constants) == len(args):
            values = (torch.tensor(value, dtype=torch.float64) for value in constants)
            value = float(op.compute(*values, **attributes))
            return f"tl.full((), {self.constant(value)}, tl.float32)"
        named = {name: self.constant(value) for name, value in attributes.items()}
        return op.triton.format(*map(self.operand, args), **named)

    def broadcast(self, value: s.Operand, index: Index) -> str:
        """A value with all elements of an index."""
        text = self.operand(value)
        if isinstance(index, Lanes):
            return f"(tl.zeros({index.shape}, tl.float32) + {text})"
        if isinstance(value, s.Constant):
            return f"tl.full({index.shape}, {text}, tl.float32)"
        if value.axes is s.Axes.TILE or value.axes is index.full:
            return text
        if isinstance(index, StepUnits):
            return f"({text} + tl.zeros({index.shape}, tl.float32))"
        return f"tl.broadcast_to({text}, {index.shape})"

    def load(self, address: s.Address, zeroed: bool = True) -> str:
        e = elements(address)
        return f"tl.load({e.pointer}{e.mask}{', other=0.0' if e.mask and zeroed else ''}{e.cache})"

    def store(self, address: s.Address, value: s.Operand) -> str:
        e = elements(address)
        cast = f"{self.broadcast(value, e.index)}.to({e.array}.dtype.element_ty)"
        return f"tl.store({e.pointer}, {cast}{e.own_mask}{e.cache})"

    # Operations on rows -------------------------------------------------------------------

    def row_operation(self, name: str, node: Node, x: str, width: int) -> Iterator[str]:
        size, op = next_power_of_2(width), OPS[node.op]
        if width == 1:  # a row of one element is a scalar here: the result is x or, but for NaN, …
            value = float(op.compute(torch.zeros(1), **node.attributes))
            alone = f"0 * {x} + {self.constant(value)}"
            yield f"{name} = {alone if node.op in ('softmax', 'norm', 'rstd') else f'{x} + 0'}"
            return

        def inside(text: str, other: str) -> str:
            lanes = f"tl.arange(0, {size}) < {width}"
            return f"tl.where({lanes}, {text}, {other})" if size > width else f"({text})"

        x = f"({x} + tl.zeros(({size},), tl.float32))"  # it may be one element for all
        zeroed = inside(x, "0.0")
        *before, result = op.triton.format(
            n=width,
            zeroed=zeroed,
            lowest=inside(x, 'float("-inf")'),
            centred=inside(f"{x} - tl.sum({zeroed}, 0) / {width}", "0.0"),
            h=f"{name}_h",
            v=f"{name}_v",
            **{name: repr(value) for name, value in node.attributes.items()},
        ).split("\n")
        yield from before
        yield f"{name} = {result}"

    def rearranged(self, node: Node, e: Elements, width: int) -> str:
        times, i = node["times"], f"tl.arange(0, {next_power_of_2(node.width)})"
        if node.op == "repeat":
            mask = f"mask={i} < {node.width}, other=0.0{e.cache}"
            return f"tl.load({e.first} + {i} // {times}, {mask}){FLOAT}"
        i, j = f"{i}[:, None]", f"tl.arange(0, {next_power_of_2(times)})[None, :]"
        mask = f"mask=({i} * {times} + {j} < {width}) & ({j} < {times}), other=0.0{e.cache}"
        x = f"tl.load({e.first} + {i} * {times} + {j}, {mask}){FLOAT}"
        return f"tl.sum(tl.sum({x}, 1), 0)" if node.width == 1 else f"tl.sum({x}, 1)"


def elements(address: s.Address) -> Elements:
    assert isinstance(address, Elements)
    return address
