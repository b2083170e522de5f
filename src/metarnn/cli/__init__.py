"""What a person types: one command a file, gathered in `main`."""
