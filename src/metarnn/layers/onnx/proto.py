"""ONNX files, written byte by byte: the little of protobuf that they need.

So an export needs no package, and holds nothing but what was put into it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

OPSET, IR = 18, 8
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7, "bool": 9, "float64": 11}


def varint(value: int) -> bytes:
    """7 bits a byte, the lowest first; negative numbers as 64-bit two's complement.

    >>> varint(300)
    b'\\xac\\x02'
    """
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, value: bytes | str) -> bytes:
    """A message, a text or bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, value: np.ndarray) -> bytes:
    """TensorProto."""
    dims = b"".join(number(1, n) for n in value.shape)
    raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
    return dims + number(2, TYPES[value.dtype.name]) + content(8, name) + content(9, raw)


def value_info(name: str, kind: str, shape: Sequence[int | str]) -> bytes:
    """ValueInfoProto: a dimension that is a name may be of any size."""
    dims = b"".join(
        content(1, number(1, n) if isinstance(n, int) else content(2, n)) for n in shape
    )
    inner = number(1, TYPES[kind]) + content(2, dims)
    return content(1, name) + content(2, content(1, inner))


def attribute(name: str, value: Any) -> bytes:
    """AttributeProto, by the type of the value; bytes are a graph."""
    head = content(1, name)
    if isinstance(value, bytes):
        return head + content(6, value) + number(20, 5)
    if isinstance(value, str):
        return head + content(4, value) + number(20, 3)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return head + number(3, value) + number(20, 2)
    if isinstance(value, np.ndarray):
        return head + content(5, tensor("", value)) + number(20, 4)
    return head + b"".join(number(8, int(v)) for v in value) + number(20, 7)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any]
) -> bytes:
    """NodeProto."""
    names = b"".join(content(1, n) for n in inputs) + b"".join(content(2, n) for n in outputs)
    more = b"".join(content(5, attribute(name, value)) for name, value in attributes.items())
    return names + content(4, op) + more


def graph(
    name: str,
    nodes: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    initializers: Sequence[bytes] = (),
) -> bytes:
    """GraphProto."""
    parts = [(1, nodes), (5, initializers), (11, inputs), (12, outputs)]
    body = b"".join(content(field, one) for field, many in parts for one in many)
    return body + content(2, name)


def model(body: bytes, notes: dict[str, str]) -> bytes:
    """ModelProto; `notes` are its metadata."""
    opset = content(8, content(1, "") + number(2, OPSET))
    said = b"".join(content(14, content(1, k) + content(2, v)) for k, v in notes.items())
    return number(1, IR) + content(2, "metarnn") + content(7, body) + opset + said
