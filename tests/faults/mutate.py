"""Files as a stranger would make them: valid ones with something wrong, or anything at all."""

import io
import json
import random
import struct
import zipfile

NASTY = [
    0, -1, 1, 2**31, 2**63, 10**12, 10**400, -(10**30), 1e308, 0.5, float("nan"), float("inf"),
    "", "x" * 1000, "../../etc/passwd", "/etc/passwd", "a\0b", "\ud800", "é", "__class__", "1e999",
    None, True, False, [], {}, [[]], [None], {"": 0}, {"$tensor": "x"}, {"$tuple": 3}, [[[[1]]]],
]  # fmt: skip
WORDS = [
    b",", b":", b";", b"\t", b"\n", b"\r\n", b'"', b"'", b"(", b")", b"[", b"{", b"@data\n", b"@",
    b"=", b"?", b"nan", b"inf", b"-", b"1e400", b"9" * 400, b"0" * 5000, b"9999-12-31", b"NaT",
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"#", b"[" * 5000, b"," * 3000,
    b" " * 3000, b"0001-01-01", b"(1,2)", b"label", b"true", b"../", b"%s%n",
    b"\x80\x04\x95cos\nsystem\n(S'false'\ntR.",
]  # fmt: skip


def mutated(data: bytes, random: random.Random) -> bytes:
    """A file changed in a few places; now and then another one altogether."""
    kind = random.random()
    if kind < 0.05:
        return random.randbytes(random.choice([0, 1, 8, 100, 3000]))
    for change in (_json, _safetensors, _zip):
        if random.random() < 0.7 and (found := change(data, random)) is not None:
            return found
    for _ in range(random.randint(1, 4)):
        data = random.choice([_flip, _cut, _insert, _double, _remove, _number])(data, random)
    return data


def _flip(data, random):
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _cut(data, random):
    return data[: random.randint(0, len(data))]


def _insert(data, random):
    at = random.randint(0, len(data))
    return data[:at] + random.choice(WORDS) + data[at:]


def _double(data, random):
    a, b = sorted(random.randint(0, len(data)) for _ in range(2))
    return data[:b] + data[a:b] * random.choice([1, 2, 50]) + data[b:]


def _remove(data, random):
    a, b = sorted(random.randint(0, len(data)) for _ in range(2))
    return data[:a] + data[min(b, a + 40) :]


def _number(data, random):
    """A number of 1 to 8 bytes, in either order, where lengths and sizes may stand."""
    form = random.choice(["<Q", ">I", "<I", ">H", "<H", "B"])
    size = struct.calcsize(form)
    value = random.choice([0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), random.getrandbits(8)])
    at = random.randint(0, min(len(data), 64))
    return data[:at] + struct.pack(form, value) + data[at + size :]


def _json(data, random):
    """A document, or one line of several, with a value in it replaced."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    try:
        document, at = json.loads(data), -1
    except (ValueError, RecursionError):
        try:
            document = json.loads(lines[at])
        except (ValueError, RecursionError):
            return None
    text = json.dumps(_replaced(document, random)).encode()
    return text if at < 0 else b"\n".join([*lines[:at], text, *lines[at + 1 :]])


def _replaced(value, random):
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        kind = random.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.2:
            return {**value, random.choice(["x", "", "__init__", "cell", "é" * 200]): value[key]}
        return {**value, key: _replaced(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value[:at], _replaced(value[at], random), *value[at + 1 :]]
    return random.choice(NASTY)


def _safetensors(data, random):
    """The same tensors under a header that says something else."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= len(data) - 8:
        return None
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):
        return None
    notes = header.get("__metadata__", {})
    inner = [key for key in notes if notes[key][:1] in ("{", "[")]
    if inner and random.random() < 0.6:
        key = random.choice(inner)
        notes[key] = json.dumps(_replaced(json.loads(notes[key]), random))
    else:
        header = _replaced(header, random)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def _zip(data, random):
    """The same archive, packed or not, with one of its members changed."""
    if data[:2] != b"PK":
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, EOFError):
        return None
    name = random.choice(list(members))
    member = members[name]
    if random.random() < 0.5 and b"'shape': (" in member:
        begin = member.index(b"'shape': (") + 10
        end = member.index(b")", begin)
        shape = random.choice(
            [b"10**12,", b"1000000000000,", b"0,", b"-1,", b"3", b"1000000000, 0"]
        )
        fill = b" " * max(0, end - begin - len(shape))
        members[name] = member[:begin] + shape + b")" + fill + member[end + 1 :]
    else:
        members[name] = random.choice([_flip, _cut, _insert, _double])(member, random)
    if random.random() < 0.1:
        members[random.choice(["../evil", "/x.npy", "x.npy", "y"])] = members.pop(name)
    out = io.BytesIO()
    packing = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(out, "w", packing) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return out.getvalue()
