"""Checksums inside the files of a run: a file that was damaged or edited is refused when read.

Each file carries its own, so that one rename puts both in place and files can be copied singly.

JSON, TOML    an entry `blake2b` of the object: the hash of all other entries, whatever the layout
safetensors   an entry `blake2b` of the metadata: the hash of the file with zeros in its place

Files without a checksum are read as they are: those of earlier versions, and those of users.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

KEY = "blake2b"
SIZE, SHORT = 16, 4  # bytes of a checksum: of a file, of a line among many
ZEROS = b"0" * (2 * SIZE)
MARK = b'"%s":"' % KEY.encode()  # before the checksum in the header of safetensors
LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it


class DamagedError(ValueError):
    """A file whose contents do not fit its checksum."""


def seal(content: Mapping[str, Any], size: int = SIZE) -> dict[str, Any]:
    """The same entries, after their checksum.

    >>> seal({"step": 3}, SHORT)
    {'blake2b': '30dad068', 'step': 3}
    """
    return {KEY: _checksum(content, size), **content}


def verify(content: Any) -> Any:
    """The entries without their checksum; a DamagedError where it does not fit.

    >>> verify({"blake2b": "30dad068", "step": 3})
    {'step': 3}
    """
    if not isinstance(content, dict):
        return content
    entries = {key: value for key, value in content.items() if key != KEY}
    if KEY not in content:
        if any(map(_nearly_key, entries)):
            raise DamagedError(f"is damaged: the name of its entry {KEY!r} is misspelt")
        return content
    written = content[KEY]
    size = SHORT if isinstance(written, str) and len(written) == 2 * SHORT else SIZE
    if written != _checksum(entries, size):
        raise DamagedError(
            f"is damaged, or was edited: its contents do not fit its checksum. Restore it, or "
            f"remove its entry {KEY!r} if the change is meant"
        )
    return entries


def seal_tensors(path: str | os.PathLike[str]) -> None:
    """Put the checksum of a safetensors file, whose metadata has ZEROS under KEY, in their place.

    For a file that has not got its name yet: until this ends it is no valid one. Equal tensors and
    metadata make equal files.
    """
    digest = hashlib.blake2b(digest_size=SIZE)
    with open(path, "r+b") as file:
        size = file.read(8)
        head = _ordered(size + file.read(int.from_bytes(size, "little")))
        at = _place(head)
        if at is None:
            raise ValueError(f"{os.fspath(path)} has no place for a checksum")
        digest.update(head)
        while piece := file.read(1 << 20):
            digest.update(piece)
        file.seek(0)
        file.write(head[:at] + digest.hexdigest().encode() + head[at + len(ZEROS) :])


def verify_tensors(data: bytes) -> None:
    """Refuse the bytes of a safetensors file that do not fit the checksum in their header."""
    size = int.from_bytes(data[:8], "little")
    at = _place(data[: 8 + min(size, LONGEST_HEADER)])
    if at is None:
        return
    end = at + len(ZEROS)
    digest = hashlib.blake2b(data[:at], digest_size=SIZE)
    digest.update(ZEROS)
    digest.update(memoryview(data)[end:])
    if digest.hexdigest().encode() != data[at:end]:
        raise DamagedError("its contents do not fit its checksum")


def _ordered(head: bytes) -> bytes:
    """The header with its metadata in the order of their names; safetensors has them in any."""
    name = '"__metadata__":'
    text = head[8:].decode()
    begin = text.find(name) + len(name)
    metadata, end = json.JSONDecoder().raw_decode(text, begin)
    metadata = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    ordered = head[:8] + f"{text[:begin]}{metadata}{text[end:]}".encode()
    return ordered if len(ordered) == len(head) else head


def _place(head: bytes) -> int | None:
    """Where the checksum begins; None where there is none.

    Quotes inside of other metadata are escaped, so that they never look like the mark.
    """
    at = head.find(MARK)
    return None if at < 0 else at + len(MARK)


def _checksum(content: Mapping[str, Any], size: int) -> str:
    # As it will be read: tuples are lists then, and keys are texts.
    plain = json.loads(json.dumps(content, default=str))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _nearly_key(name: Any) -> bool:
    """Whether a name differs from that of the checksum in one character."""
    same = isinstance(name, str) and len(name) == len(KEY)
    return same and sum(a != b for a, b in zip(name, KEY, strict=True)) == 1
