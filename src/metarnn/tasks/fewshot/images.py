"""Images as sequences: of their rows, or of points along their ink."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.tasks.classification.images import read_image

LUMA = torch.tensor([0.299, 0.587, 0.114])  # how bright red, green and blue are (ITU-R 601)
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
    """A grey image, [height, width] from 0 to 1. PGM and PNG need nothing, others need Pillow."""
    image = torch.from_numpy(read_image(path))
    return image[:, :, 0] if image.shape[2] == 1 else image @ LUMA
