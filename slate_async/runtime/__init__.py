"""Time, chance, names, threads and supervised tasks: the only place that touches the machine.

What a caller's own `Runtime` is made of is exported here. The engine imports the modules themselves.
"""

from slate_async.runtime.protocol import Clock, Ids, Offload, Runtime
from slate_async.runtime.system import SystemClock, SystemIds, ThreadOffload, end_threads, system_runtime

__all__ = [
    "Clock",
    "Ids",
    "Offload",
    "Runtime",
    "SystemClock",
    "SystemIds",
    "ThreadOffload",
    "end_threads",
    "system_runtime",
]
