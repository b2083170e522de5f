"""Training, shared by all tasks: the loop, checkpoints, averages, distribution."""

from metarnn.training.folder import Folder, FolderError
from metarnn.training.guard import NotFinite
from metarnn.training.settings import Settings
from metarnn.training.trainer import Result, Trainer
from metarnn.training.world import World

__all__ = ["Folder", "FolderError", "NotFinite", "Result", "Settings", "Trainer", "World"]
