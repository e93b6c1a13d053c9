"""Objects as files of a local folder, crash-safe, with conditional writes that hold between processes.

===============  ============================================================================
module           holds
===============  ============================================================================
``file``         the bytes of one object file: data, metadata, etag, trailer
``layout``       keys to paths and back, and the walk in byte order of keys
``modes``        which users may read and write the files
``claims``       compare-and-set of a file, without locks
``temps``        temporary files: their owners, and clearing up after crashed ones
``open_files``   files kept open to be read again
``unsynced``     names that a loss of power may still take, and the tasks that sync them
``folder``       the operations, blocking, each complete in itself
``os_errors``    what errors of the file system mean to the caller
``lost_folder``  the error of a folder that vanished while it was open
``store``        `LocalStore`: the operations, run on worker threads
===============  ============================================================================
"""

from slate_async.objectstore.local.modes import Modes
from slate_async.objectstore.local.store import LocalStore

__all__ = ["LocalStore", "Modes"]
