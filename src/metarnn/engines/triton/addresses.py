"""Elements of arrays: which ones a program reads or writes, and how that is written in Triton."""

from __future__ import annotations

from dataclasses import dataclass, field

from metarnn.engines.codegen.statements import Address, Axes
from metarnn.engines.triton.program import next_power_of_2, padded


@dataclass(frozen=True)
class Index:
    """Some elements of rows: as an expression their `offset` from the first, their `mask` and the
    `shape` of what is loaded; and the variable for their `row`."""

    offset = ""
    shape = "()"
    row = "row"
    full = Axes.TILE  # the axes of a value that has this shape

    def mask(self, shared: bool, own: bool) -> str:
        """Which elements there are, of rows or of one `shared` row; and which a program stores as
        its `own`."""
        raise NotImplementedError


class PerSequence(Index):
    """One element per sequence."""

    shape = "(BLOCK_B, 1)"
    full = Axes.SEQUENCES

    def mask(self, shared: bool, own: bool) -> str:
        return "" if shared else "row_mask"


@dataclass(frozen=True)
class Tile(Index):
    """The units of rows of one width that a program computes: a slice of its own, or all."""

    width: int
    replicated: bool = False

    @property
    def suffix(self) -> str:
        """What the names of its size, offsets and masks end with."""
        return f"{self.width}_all" if self.replicated else f"{self.width}"

    @property
    def offset(self) -> str:
        return f"units_{self.suffix}"

    @property
    def shape(self) -> str:
        return f"(BLOCK_B, UNITS_{self.suffix})"

    def mask(self, shared: bool, own: bool) -> str:
        inside = f"{'inside' if shared else 'mask'}_{self.suffix}"
        return f"{inside} & (program == 0)" if own and self.replicated else inside

    def definition(self) -> list[str]:
        """The lines that define its size, offsets and masks."""
        n, size, units = self.width, f"UNITS_{self.suffix}", self.offset
        inside = f"inside_{self.suffix} = {units} < {n}"
        if self.replicated:
            return [
                f"{size}: tl.constexpr = {padded(n)}",
                f"{units} = tl.arange(0, {size})[None, :]",
                inside,
                f"mask_{self.suffix} = row_mask & inside_{self.suffix}",
            ]
        some = f"row_mask & ({units} < {n})"
        return [
            f"{units} = (program * {size} + tl.arange(0, {size}))[None, :]",
            f"mask_{self.suffix} = row_mask if PROGRAMS * {size} == {n} else {some}",
            inside,
        ]


@dataclass(frozen=True)
class Lanes(Index):
    """So many elements of the row of one sequence; a single one is a scalar."""

    count: int
    row = "sequence"
    full = Axes.UNITS

    @property
    def offset(self) -> str:
        return f"tl.arange(0, {next_power_of_2(self.count)})" if self.count > 1 else ""

    @property
    def shape(self) -> str:
        return f"({next_power_of_2(self.count)},)" if self.count > 1 else "()"

    def mask(self, shared: bool, own: bool) -> str:
        padding = next_power_of_2(self.count) > self.count
        return f"{self.offset} < {self.count}" if padding else ""


@dataclass(frozen=True)
class StepUnits(Index):
    """In a scan: the units of a sequence at steps that are some `distance` apart; or (not `wide`)
    one element at each."""

    valid: str = ""
    distance: str = ""
    wide: bool = True
    shape = "(ROWS, UNITS)"

    @property
    def offset(self) -> str:
        if self.wide and self.distance:
            return f"({self.distance} + units)"
        return "units" if self.wide else self.distance

    def mask(self, shared: bool, own: bool) -> str:
        return self.valid


@dataclass(frozen=True)
class Elements(Address):
    """Elements of the rows of an array.

    `array` is the pointer that `base` begins with. What other programs read or have written
    bypasses the L1 cache.
    """

    array: str = ""
    index: Index = field(default_factory=PerSequence)
    bypass_l1: bool = False

    @property
    def first(self) -> str:
        """The address of the first one of each row."""
        row = "" if self.shared else f" + {self.index.row} * {self.width}"
        return f"{self.base}{row}{f' + {self.start}' if self.start else ''}"

    @property
    def pointer(self) -> str:
        return " + ".join(filter(None, [self.first, self.index.offset]))

    @property
    def mask(self) -> str:
        """The argument that masks a load."""
        mask = self.index.mask(self.shared, own=False)
        return f", mask={mask}" if mask else ""

    @property
    def own_mask(self) -> str:
        """The argument that masks a store."""
        mask = self.index.mask(self.shared, own=True)
        return f", mask={mask}" if mask else ""

    @property
    def cache(self) -> str:
        return ', cache_modifier=".cg"' if self.bypass_l1 else ""
