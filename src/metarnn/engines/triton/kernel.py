"""A generated kernel, ready to be launched."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metarnn.engines.plan import Key
from metarnn.engines.triton.engine import CannotLaunch, interpreted
from metarnn.engines.triton.program import MAILBOX_DEPTH, ProductGroup, Program
from metarnn.engines.triton.runtime import (
    counters,
    current,
    first_launch,
    function,
    raise_timeout,
    sm_count,
    timeout_flag,
    warn_if_long,
)
from metarnn.engines.triton.tiling import Tiling, tile

if TYPE_CHECKING:
    from metarnn.engines.triton.loops import CallShape

OWN_ARRAYS = "packed", "partial_sums", "mailbox"  # which a launch allocates for itself


@dataclass
class Launch:
    """How a kernel is launched for one batch size and one set of dtypes."""

    tiling: Tiling
    constants: dict[str, Any]
    packed: int  # how many packed weights there are
    exchanged: dict[Key, int]  # how many partial sums, and how large mailboxes are
    synchronizes: bool  # whether programs wait for one another
    compiled: Any = None  # what Triton made of it, once it was launched


class _Case(NamedTuple):
    """What a launch depends on."""

    batch: int
    full: frozenset[int]
    dot: torch.dtype
    split: bool
    device: torch.device


def weight_size(dot: torch.dtype) -> int:
    """The bytes of a weight on chip."""
    return dot.itemsize * (2 if _split(dot) else 1)


def _split(dot: torch.dtype) -> bool:
    """Whether a product of float32 takes three of TF32."""
    return dot == torch.float32 and not torch.backends.cudnn.allow_tf32


def weight_offsets(groups: Iterable[ProductGroup], tiling: Tiling, copies: int) -> list[int]:
    """Where the packed weights of products begin, one after the other, and where all end."""
    sizes = (copies * tiling.share.programs * tiling.weights(group) for group in groups)
    return list(accumulate(sizes, initial=0))


def launch_constants(
    program: Program, tiling: Tiling, full: frozenset[int], dot: torch.dtype, split: bool
) -> dict[str, Any]:
    """The kernel's parameters that Triton compiles in."""
    import triton.language as tl

    dtypes = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    offsets = weight_offsets(program.groups, tiling, 2 if split else 1)
    return {
        **tiling.constants(program),
        **{f"FULL_HISTORY_{i}": i in full for i, s in enumerate(program.states) if s.in_memory},
        **{g.constant("OFFSET"): at for g, at in zip(program.groups, offsets, strict=False)},
        "DOT_DTYPE": dtypes[dot],
        "SPLIT_FP32": split,
        "SINGLE": tiling.share.programs == 1,
    }


def allocate(counts: tuple[int, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Arrays of so many values that programs exchange."""
    if not counts:
        return ()
    return torch.empty(sum(counts), dtype=torch.float32, device=device).split(counts)


class Kernel:
    """One program, compiled for each batch size and dtype when it is first needed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._own = [key for key in program.arrays if key[0] in OWN_ARRAYS]
        self._launches: dict[_Case, Launch] = {}
        self._lock = threading.Lock()

    @cached_property
    def function(self) -> Any:
        """The kernel function, made of its source when it is first needed."""
        return function(self.program.name, self.program.source)

    def __call__(self, arrays: Mapping[Key, Tensor], size: CallShape, full: frozenset[int]) -> None:
        """Run all steps. Arrays are contiguous; the states in `full` have a slot for every step."""
        raise_timeout(size.device)
        case = _Case(size.batch, full, size.dot, _split(size.dot), size.device)
        launch = self._launches.get(case)
        if launch is not None and launch.compiled is not None:
            self._run(launch, case, arrays, size.steps)
            return
        warn_if_long(self.program.source)
        budget = 1.0
        while True:
            try:
                with first_launch(done=False), current(size.device):
                    self._run(self._launch(case, budget), case, arrays, size.steps)
                return
            except CannotLaunch as error:
                # The model of what fits on the chip was wrong: count on less of it.
                if type(error.__cause__).__name__ != "OutOfResources" or budget < 0.1:
                    raise
                budget *= 0.75
                self._launches.pop(case, None)

    def _launch(self, case: _Case, budget: float) -> Launch:
        with self._lock:
            if case not in self._launches:
                self._launches[case] = self._prepare(case, budget)
            return self._launches[case]

    def _prepare(self, case: _Case, budget: float) -> Launch:
        program = self.program
        tiling = tile(program, case.batch, weight_size(case.dot), sm_count(case.device), budget)
        constants = launch_constants(program, tiling, case.full, case.dot, case.split)
        order = self.function.arg_names[len(program.arrays) + 5 :]
        exchanged: dict[Key, int] = {
            ("partial_sums", group.name): tiling.partial_sums(group)
            for group, chunks in zip(program.groups, tiling.chunks, strict=True)
            if chunks.partial
        }
        for name, width in program.mailboxes.items() if tiling.publish else ():
            exchanged["mailbox", name] = MAILBOX_DEPTH * case.batch * width
        return Launch(
            tiling,
            {name: constants[name] for name in order},
            weight_offsets(program.groups, tiling, 2 if case.split else 1)[-1],
            exchanged,
            program.synchronizes and tiling.share.programs > 1,
        )

    def _run(self, launch: Launch, case: _Case, arrays: Mapping[Key, Tensor], steps: int) -> None:
        share, batch, device = launch.tiling.share, case.batch, case.device
        if launch.packed:
            packed = torch.empty(launch.packed, dtype=case.dot, device=device)
            exchanged = allocate(tuple(launch.exchanged.values()), device)
            # A kernel that exchanges nothing of a kind reads nothing in its place.
            arrays = {**arrays, **dict.fromkeys(self._own, packed)}
            arrays |= zip(launch.exchanged, exchanged, strict=True)
        pointers = [arrays[key] for key in self.program.arrays]
        for first in range(0, batch, share.groups * share.sequences):
            groups = min(share.groups, -(-(batch - first) // share.sequences))
            tensors = (*pointers, counters(groups, device))
            scalars = (timeout_flag(device)[0], steps, batch, first)
            with current(device):
                start(self.function, launch, groups * share.programs, tensors, scalars)


def start(
    function: Any,
    launch: Launch,
    programs: int,
    tensors: Sequence[Tensor],
    scalars: tuple[Any, ...],
) -> None:
    """Launch so many programs."""
    if interpreted():
        function[programs,](*tensors, *scalars, **launch.constants)
        return
    # Triton works out at every call, in tens of microseconds, which of its compiled kernels fits:
    # the one before does, if dtypes and the alignment of all arrays are the same. Given addresses,
    # it asks the driver for none.
    addresses = [t.data_ptr() for t in tensors]
    aligned = not any(address & 15 for address in addresses)
    dtypes = [t.dtype for t in tensors]
    if launch.compiled is not None and aligned and launch.compiled[0] == dtypes:
        launch.compiled[1][programs, 1, 1](*addresses, *scalars, *launch.constants.values())
        return
    compiled = function[programs,](
        *tensors,
        *scalars,
        **launch.constants,
        num_warps=launch.tiling.warps,
        num_stages=launch.tiling.stages,
        # All programs run at the same time or the launch fails, if they wait for one another.
        launch_cooperative_grid=launch.synchronizes,
    )
    if aligned:
        launch.compiled = dtypes, compiled
