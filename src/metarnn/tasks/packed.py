"""Files that are packed: unpacked only as far as the memory for it is in proportion."""

from __future__ import annotations

import gzip
import importlib
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as npy

from metarnn.graph.files import content, plain

# A file may always unpack to so many bytes, and to so many times its own: text packs 10 to 1, and
# what packs 1000 to 1 is made to fill a memory.
ALWAYS, TIMES = 64 * 2**20, 100
MOST_ARRAYS = 1000
PIECE = 1 << 20


def most(packed: int) -> int:
    """To how many bytes so many may unpack."""
    return max(ALWAYS, TIMES * packed)


def gunzip(path: str | os.PathLike[str]) -> bytes:
    """The content of a file that gzip packed."""
    data = content(path)
    limit = most(len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{os.fspath(path)} is damaged: {error}") from None
    if len(found) > limit:
        raise _unpacks_to_more(path, limit, len(data))
    return found


def pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The content of a plain file a piece at a time; of one that is packed, unpacked."""
    name = os.fspath(path)
    if name.lower().endswith(CONVERTED):
        table = table_content(path)
        yield from (table[k : k + PIECE] for k in range(0, len(table), PIECE))
        return
    with plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not name.endswith(".gz"):
            while piece := file.read(PIECE):
                yield piece
            return
        limit = left = most(size)
        unpacked = gzip.GzipFile(fileobj=file)
        try:
            while piece := unpacked.read(PIECE):
                left -= len(piece)
                if left < 0:
                    raise _unpacks_to_more(path, limit, size)
                yield piece
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name} is damaged: {error}") from None


CONVERTED = (".parquet", ".zip")  # read as the CSV that they hold
CONVERSIONS = {
    ".mat": "Convert it: scipy.io.loadmat gives arrays, which numpy.savez(NEW, x=..., y=...) "
    "writes as .npz",
}
ONE_TABLE = "Unpack it (unzip {0}) and name the file or folder in it"


def table_content(path: str | os.PathLike[str]) -> bytes:
    """The CSV in a file: its content, that of the one file in a .zip, or what a .parquet holds."""
    name, kind = os.fspath(path), os.path.splitext(path)[1].lower()
    if kind in CONVERSIONS:
        raise ValueError(f"{name}: {kind} files are not read. {CONVERSIONS[kind]}")
    if kind == ".zip":
        return _only_member(name)
    return _parquet(name) if kind == ".parquet" else content(path)


def _only_member(name: str) -> bytes:
    data = content(name)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
            if len(members) == 1 and members[0].filename.lower().endswith(".csv"):
                if members[0].file_size > most(len(data)):
                    raise _unpacks_to_more(name, most(len(data)), len(data))
                return archive.read(members[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
        raise ValueError(f"{name} is damaged: {error}") from None
    found = ", ".join(each.filename for each in members[:3]) or "nothing"
    raise ValueError(f"{name} holds {found}: expected one .csv. {ONE_TABLE.format(name)}")


def _parquet(name: str) -> bytes:
    data = content(name)
    try:
        arrow: Any = importlib.import_module("pyarrow")
        csv: Any = importlib.import_module("pyarrow.csv")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{name}: parquet files need the package pyarrow: pip install pyarrow"
        ) from None
    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        groups = (file.metadata.row_group(k) for k in range(file.metadata.num_row_groups))
        if sum(group.total_byte_size for group in groups) > most(len(data)):
            raise _unpacks_to_more(name, most(len(data)), len(data))
        table = io.BytesIO()
        csv.write_csv(file.read(), table)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{name} is no table of parquet: {error}") from None
    return table.getvalue()


def _unpacks_to_more(path: str | os.PathLike[str], limit: int, size: int) -> ValueError:
    return ValueError(
        f"{os.fspath(path)} unpacks to more than {limit:,} bytes from {size:,}: if that is meant, "
        "unpack it first"
    )


def arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file: of numbers and texts, never of Python's objects."""
    name, data = os.fspath(path), content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise ValueError(f"{len(members):,} arrays: expected at most {MOST_ARRAYS:,}")
            size = sum(member.file_size for member in members)
            if size > most(len(data)):
                why = "if that is meant, save it with np.savez, which does not pack"
                raise ValueError(f"it unpacks to {size:,} bytes from {len(data):,}: {why}")
            return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"{name} is damaged: {error}") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error) as error:
        raise ValueError(f"{name} is no .npz file: {error}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array; its header is compared with what is there before memory is taken."""
    with archive.open(member) as packed:
        file = io.BytesIO(packed.read(member.file_size))
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # of many kinds, tokenize's among them
        raise ValueError(f"{member.filename} is no array: {error}") from None
    if dtype.kind not in "biufUS":
        raise ValueError(f"{member.filename} has the type {dtype}: expected numbers or texts")
    there = member.file_size - file.tell()
    if math.prod(shape) * dtype.itemsize != there or min(shape, default=1) < 1:
        raise ValueError(f"{member.filename} says the shape {shape}, but {there:,} bytes are there")
    found = np.frombuffer(file.read(), dtype)
    return found.reshape(shape, order="F" if fortran else "C")
