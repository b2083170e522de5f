"""Images as numbers, [height, width, channels] from 0 to 1: PNG and PGM here, others by Pillow."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

SUFFIXES = (".png", ".pgm", ".ppm", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # of PNG's colour types: grey, RGB, both with transparency


def read_image(path: Path) -> np.ndarray:
    """An image; transparency is left out."""
    content = path.read_bytes()
    found = None
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        found = _png(content, path)
    elif content[:2] in (b"P5", b"P6"):
        found = _pnm(content, path)
    if found is None:
        found = _pillow(path)
    return np.asarray(found, np.float32)


def _png(content: bytes, path: Path) -> np.ndarray | None:
    """8 bits a number, not interlaced, no palette; None for what is rarer."""
    at, data, header = 8, b"", None
    while at + 8 <= len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            data += body
        at += 12 + size
    if header is None:
        raise ValueError(f"{path} is a damaged PNG: it has no header")
    width, height, depth, colour, _, _, interlaced = header
    if depth != 8 or colour not in CHANNELS or interlaced:
        return None
    pixel = CHANNELS[colour]
    try:
        raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * pixel)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"{path} is a damaged PNG: {error}") from None
    image = np.zeros((height, width, pixel), np.uint8)
    above = np.zeros((width, pixel), np.int64)
    for y, line in enumerate(raw):
        above = _unfiltered(line[0], line[1:].reshape(width, pixel).astype(np.int64), above)
        image[y] = above
    return image[:, :, : pixel - (colour in (4, 6))] / 255


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    """A line of a PNG from its differences: to the left, above, their mean, or Paeth's choice."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, 0) % 256
    if kind == 2:
        return (line + above) % 256
    left = upper = np.zeros(line.shape[1], np.int64)
    for x in range(len(line)):
        if kind == 3:
            guess = (left + above[x]) // 2
        else:
            p = left + above[x] - upper
            a, b, c = abs(p - left), abs(p - above[x]), abs(p - upper)
            guess = np.where((a <= b) & (a <= c), left, np.where(b <= c, above[x], upper))
        upper = above[x]
        line[x] = left = (line[x] + guess) % 256
    return line


def _pnm(content: bytes, path: Path) -> np.ndarray:
    words: list[bytes] = []
    at = 0
    while len(words) < 4:  # magic, width, height, largest value, with comments between
        end = at
        while end < len(content) and not content[end : end + 1].isspace():
            end += 1
        word = content[at:end]
        if word.startswith(b"#"):
            end = content.find(b"\n", at)
        elif word:
            words.append(word)
        at = end + 1
        if at > len(content):
            raise ValueError(f"{path} is a damaged {path.suffix[1:]} file: its header ends early")
    width, height, largest = map(int, words[1:])
    kind = np.dtype(">u2") if largest > 255 else np.dtype(np.uint8)
    pixel = 3 if words[0] == b"P6" else 1
    count = width * height * pixel
    if len(content) - at < count * kind.itemsize:
        raise ValueError(f"{path} is damaged: expected {count} numbers after its header")
    return np.frombuffer(content, kind, count, at).reshape(height, width, pixel) / largest


def _pillow(path: Path) -> np.ndarray:
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path} needs the package pillow: pip install pillow; 8-bit PNG and PGM do not"
        ) from None
    with Image.open(path) as image:
        grey = image.mode in ("1", "L", "LA", "I", "I;16")
        pixels = np.asarray(image.convert("L" if grey else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1) / 255
