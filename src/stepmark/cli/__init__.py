"""The ``stepmark`` command: one module a verb; each imports its work when it runs."""

from .app import main

__all__ = ["main"]
