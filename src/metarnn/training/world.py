"""The processes that train together, be it one.

Gradients are summed by hand rather than by DistributedDataParallel: weighted by the number of
tokens behind them, so that processes with unequal parts still make the update of one process with
all of them; and whatever put them into `.grad`. The weight gradients of a recurrent layer come at
the end of its backward pass anyway, so there is little computation that their sum could hide
behind.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.nn.functional import pad

from metarnn.cells import check
from metarnn.tasks.task import Shard
from metarnn.training.tree import pack, unpack

# Long enough for the others to wait while the first evaluates a large corpus.
PATIENCE = timedelta(hours=2)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this is."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def shards(self, parts: int) -> list[Shard]:
        """Our parts of each batch, of which every process has so many."""
        return [Shard(self.rank * parts + k, self.size * parts) for k in range(parts)]

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each number over all processes, in double precision."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def largest(self, numbers: Sequence[float]) -> list[float]:
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return total.tolist()

    def tell(self, thing: Any) -> Any:
        """What the first process says, on every process."""
        if self.size == 1:
            return thing
        message = pack(thing) if self.is_first else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor(message.numel())
        dist.broadcast(length, src=0)
        message = message if self.is_first else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(message, src=0)
        return unpack(message)

    def gather(self, thing: Any) -> list[Any]:
        """What each process says, on every process."""
        if self.size == 1:
            return [thing]
        message = pack(thing)
        lengths = [torch.tensor(0) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor(message.numel()))
        longest = int(max(lengths))
        padded = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
        dist.all_gather(padded, pad(message, (0, longest - message.numel())))
        return [unpack(each[: int(n)]) for each, n in zip(padded, lengths, strict=True)]

    @torch.no_grad()
    def share_weights(self, tensors: Sequence[Tensor]) -> None:
        """Give every process the first one's weights."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients over all processes; one that is None on all of them stays None."""
        if self.size == 1:
            return
        given = [0.0 if w.grad is None else 1.0 for w in parameters]
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in parameters]
        kinds = {grad.dtype for grad in grads}
        for kind in kinds:
            chosen = [k for k, grad in enumerate(grads) if grad.dtype == kind]
            flat = [grads[k].flatten() for k in chosen]
            seen = grads[chosen[0]].new_tensor([given[k] for k in chosen])
            buffer = torch.cat([*flat, seen])
            dist.all_reduce(buffer)
            *sums, seen = buffer.split([*(f.numel() for f in flat), len(chosen)])
            for k, total, count in zip(chosen, sums, seen.tolist(), strict=True):
                parameters[k].grad = total.view_as(grads[k]) if count else None


@contextmanager
def joined(device: str = "auto") -> Generator[World]:
    """The world that torchrun set up, or this process alone; left again at the block's end."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    place = find_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    if size == 1 or dist.is_initialized():
        yield World(rank, size, place)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = fresh(TCPStore(address, port, size, is_master=False), rank, size)
        dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=size)
    else:
        dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield World(rank, size, place)
    finally:
        dist.destroy_process_group()


def fresh(store: Store, rank: int, size: int) -> Store:
    """The part of a store where only workers that are alive now have written.

    torchrun's store outlives its workers: those started anew would find the addresses that the
    dead ones left there. So each worker says a word of its own, and the first answers whoever
    it hears until all have come; the answer names the part to use. (torchrun's count of restarts
    would not do: it differs between machines.)
    """
    word = uuid.uuid4().hex
    store.set(f"metarnn/hello/{rank}", word)
    if rank:
        chosen = store.get(f"metarnn/welcome/{word}").decode()  # waits until it is there
        store.set(f"metarnn/here/{chosen}/{rank}", "")
        return PrefixStore(f"metarnn/{chosen}", store)
    missing = set(range(1, size))
    while missing:
        for other in list(missing):
            if store.check([f"metarnn/here/{word}/{other}"]):
                missing.discard(other)
            elif store.check([f"metarnn/hello/{other}"]):
                heard = store.get(f"metarnn/hello/{other}").decode()
                store.set(f"metarnn/welcome/{heard}", word)
        time.sleep(0.02)
    return PrefixStore(f"metarnn/{word}", store)


def find_device(device: str, local: int = 0) -> torch.device:
    """The device of that name; of several GPUs, each process of a machine gets its own."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        check.refuse("device", device, "auto, cpu, cuda or cuda:N")
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = local if found.index is None else found.index
        if index >= count:
            has = f"one of {count} GPUs" if count else "'cpu': this machine has no CUDA device"
            check.refuse("device", device, has)
        return torch.device("cuda", index)
    return found


def place(model: nn.Module, device: str) -> torch.device:
    """The device that is asked for; for "auto" the model's own, where that is none but a CPU."""
    own = next((w.device for w in model.parameters()), torch.device("cpu"))
    return own if device == "auto" and own.type != "cpu" else find_device(device)
