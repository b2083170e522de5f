"""Images as sequences: of their rows, or of points along their ink."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

IMAGES = {".pgm", ".png", ".jpg", ".jpeg", ".bmp", ".gif"}


def rows(path: Path, size: int, length: int = 0) -> Tensor:
    """An image brought to size × size, a row a step, [size, size], from 0 to 1."""
    return F.interpolate(read(path)[None, None], (size, size), mode="area")[0, 0]


def strokes(path: Path, size: int, length: int) -> Tensor:
    """A path over what is written, [length, 3]: x and y from -1 to 1, and 1 where the pen jumped.

    Ink is what differs more from the background, the commonest value; the path goes from each point
    to the nearest one not yet visited.
    """
    image = rows(path, size)
    background = image.flatten().mode().values
    apart = (image - background).abs()
    points = (apart > 0.5 * apart.max().clamp(min=1e-6)).nonzero().float()
    if not len(points):
        return torch.zeros(length, 3)
    left = torch.ones(len(points), dtype=torch.bool)
    at = int(points.sum(1).argmin())
    order, jumps = [], []
    for _ in range(len(points)):
        left[at] = False
        order.append(at)
        away = (points - points[at]).square().sum(1).masked_fill(~left, torch.inf)
        following = int(away.argmin())
        jumps.append(float(away[following] > 4))
        at = following
    path_ = points[order] / (size - 1) * 2 - 1
    chosen = torch.linspace(0, len(order) - 1, length).round().long()
    up = torch.tensor([0.0, *jumps[:-1]]).cumsum(0)[chosen]
    jumped = torch.cat([torch.zeros(1), (up[1:] > up[:-1]).float()])
    return torch.cat([path_[chosen].flip(1), jumped.unsqueeze(1)], 1)


def read(path: Path) -> Tensor:
    """A grey image, [height, width] from 0 to 1. PGM needs nothing, other kinds need Pillow."""
    if path.suffix.lower() == ".pgm":
        return _pgm(path)
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports]  an extra
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path.name}: images other than PGM need Pillow: pip install pillow"
        ) from None
    with Image.open(path) as image:
        return torch.from_numpy(np.asarray(image.convert("L"), dtype=np.float32) / 255)


def _pgm(path: Path) -> Tensor:
    data = path.read_bytes()
    fields: list[bytes] = []
    at = 0
    while len(fields) < 4 and at < len(data):  # magic, width, height, the value of white
        if data[at : at + 1] == b"#":
            at = data.find(b"\n", at) + 1 or len(data)
        elif data[at : at + 1].isspace():
            at += 1
        else:
            end = at
            while end < len(data) and not data[end : end + 1].isspace():
                end += 1
            fields.append(data[at:end])
            at = end
    try:
        width, height, white = (int(field) for field in fields[1:])
        if fields[0] == b"P5":
            kind = np.dtype(">u2") if white > 255 else np.dtype("u1")
            values = np.frombuffer(data, kind, width * height, at + 1)
        elif fields[0] == b"P2":
            values = np.array(data[at:].split()[: width * height], dtype=np.float32)
        else:
            raise ValueError
        image = values.reshape(height, width).astype(np.float32) / white
    except (ValueError, IndexError, ZeroDivisionError):
        raise ValueError(f"{path} is no PGM image") from None
    return torch.from_numpy(image)
