"""Objects as files of a local folder, crash-safe, with conditional writes that hold between processes.

==============  ============================================================================
module          holds
==============  ============================================================================
``file``        the bytes of one object file: data, metadata, etag, trailer
``layout``      keys to paths and back, and the walk in byte order of keys
``modes``       who may read and write what is made
``claims``      compare-and-set of a file, without locks
``temps``       temporary files: who owns them, and clearing up after crashed owners
``open_files``  files kept open to be read again
``unsynced``    names that a loss of power may still take, and who has to sync them
``folder``      the operations, blocking, each complete in itself
``failures``    what errors of the file system mean to the caller
``store``       `LocalStore`: the operations, run on worker threads
==============  ============================================================================
"""

from slate_async.objectstore.local.modes import Modes
from slate_async.objectstore.local.store import LocalStore

__all__ = ["LocalStore", "Modes"]
