"""What was found in data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """What was found: the task that suits, and what to set so that its data are read as meant.

    task      lm, translation, classification or forecasting
    about     lines for a person: what was found, and why it is this task
    data      what the task reads
    settings  of the task's configuration
    """

    task: str
    about: tuple[str, ...]
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)
