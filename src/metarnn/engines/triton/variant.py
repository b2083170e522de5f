"""Numbers that were measured, and how to measure others.

METARNN_TRITON="held=4096,units=256" changes them for one process. Results are the same.
"""

from __future__ import annotations

import os


def variant(name: str, measured: int) -> int:
    """The number of that name: what was measured to be best, unless the environment says else."""
    text = os.environ.get("METARNN_TRITON", "")
    asked = dict(item.split("=") for item in text.split(",") if item)
    return int(asked.get(name, measured))
