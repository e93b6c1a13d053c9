"""The folder of a store that vanished while the store was open."""

from __future__ import annotations


class FolderLostError(OSError):
    """The folder is not there any more, or it is empty, though objects were seen in it. Their absence says nothing."""
