"""What can be trained: each task's configuration, data and model, and the folder of a run."""
