"""Images as numbers, [height, width, channels] from 0 to 1: PNG and PGM here, others by Pillow."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np

from metarnn.graph.files import content

SUFFIXES = (".png", ".pgm", ".ppm", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
MOST_PIXELS = 2**24  # of an image: what is longer is no sequence to learn from
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # of PNG's colour types: grey, RGB, both with transparency


def read_image(path: Path) -> np.ndarray:
    """An image; transparency is left out."""
    data = content(path)
    found = None
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            found = _png(data)
        elif data[:2] in (b"P2", b"P5", b"P6"):
            found = _pnm(data)
    except (ValueError, IndexError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} is a damaged image: {error}") from None
    if found is None:
        found = _pillow(path)
    return np.asarray(found, np.float32)


def _check_pixels(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        most = f"at least one pixel, and at most {MOST_PIXELS:,}"
        raise ValueError(f"it says {width:,} × {height:,} pixels: expected {most}")


def _png(data: bytes) -> np.ndarray | None:
    """8 bits a number, not interlaced, no palette; None for what is rarer."""
    at, packed, header = 8, [], None
    while at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed.append(body)
        at += 12 + size
    if header is None:
        raise ValueError("it has no header")
    width, height, depth, colour, _, _, interlaced = header
    _check_pixels(width, height)
    if depth != 8 or colour not in CHANNELS or interlaced:
        return None
    pixel = CHANNELS[colour]
    line = 1 + width * pixel
    raw = zlib.decompressobj().decompress(b"".join(packed), height * line)
    if len(raw) != height * line:
        raise ValueError(f"{len(raw):,} bytes of pixels: expected {height * line:,}")
    above = bytes(width * pixel)
    lines = []
    for y in range(height):
        above = _unfiltered(raw[y * line], raw[y * line + 1 : (y + 1) * line], above, pixel)
        lines.append(above)
    image = np.frombuffer(b"".join(lines), np.uint8).reshape(height, width, pixel)
    return image[:, :, : pixel - (colour in (4, 6))] / 255


def _unfiltered(kind: int, line: bytes, above: bytes, pixel: int) -> bytes:
    """A line of a PNG from its differences: to the left, above, their mean, or Paeth's choice."""
    if kind == 0:
        return line
    if kind == 1:
        columns = np.frombuffer(line, np.uint8).reshape(-1, pixel)
        return np.cumsum(columns, 0, dtype=np.uint8).tobytes()
    if kind == 2:
        return (np.frombuffer(line, np.uint8) + np.frombuffer(above, np.uint8)).tobytes()
    # Plain Python, byte by byte: each needs the one before.
    found = bytearray(bytes(pixel) + line)
    upper = bytes(pixel) + above
    for x in range(pixel, len(found)):
        left, up = found[x - pixel], upper[x]
        if kind == 3:
            guess = (left + up) // 2
        else:
            corner = upper[x - pixel]
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if a <= b and a <= c else up if b <= c else corner
        found[x] = (found[x] + guess) & 255
    return bytes(found[pixel:])


_WORD = re.compile(rb"(?:\s|#[^\n]*\n)*([^\s#]{1,10})")


def _pnm(data: bytes) -> np.ndarray:
    """Grey (P2 as text, P5) or colour (P6): magic, width, height, largest value, then pixels."""
    words: list[bytes] = []
    at = 0
    for _ in range(4):
        word = _WORD.match(data, at)
        if word is None:
            raise ValueError("its header ends early")
        words.append(word[1])
        at = word.end()
    width, height, largest = map(int, words[1:])
    _check_pixels(width, height)
    if not 1 <= largest <= 65535:
        raise ValueError(f"{largest} as the largest value: expected 1 to 65535")
    pixel = 3 if words[0] == b"P6" else 1
    count = width * height * pixel
    if words[0] == b"P2":
        numbers = data[at:].split(None, count)[:count]
        found = np.array([int(number) for number in numbers if len(number) < 10], np.float32)
    else:
        kind = np.dtype(">u2") if largest > 255 else np.dtype(np.uint8)
        found = np.frombuffer(data[at + 1 : at + 1 + count * kind.itemsize], kind)
    if len(found) != count:
        raise ValueError(f"{len(found):,} numbers after its header: expected {count:,}")
    return found.reshape(height, width, pixel) / largest


def _pillow(path: Path) -> np.ndarray:
    try:
        from PIL import Image  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path} needs the package pillow: pip install pillow; 8-bit PNG and PGM do not"
        ) from None
    try:
        with Image.open(path) as image:
            _check_pixels(*image.size)
            grey = image.mode in ("1", "L", "LA", "I", "I;16")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except Exception as error:  # of many kinds, SyntaxError among them
        raise ValueError(f"{path} is no image that can be read: {error}") from None
    return pixels.reshape(*pixels.shape[:2], -1) / 255
