"""The knobs of a database, `Settings`; `collections` has those of persistent collections, and is imported by itself.

* `settings`: those of a database, what it checks; `writing`, `storing`, `operating`: the settings themselves
* `collections`: those of collections
* `sourced`: what both have: their sources and the order of these
* `fields`: what each of them is made of
* `sources`: environment variables and TOML files
"""

from slate_async.settings.fields import DAY_MS, CompactionStyle, Compression, LogProtocol
from slate_async.settings.settings import Settings

__all__ = ["DAY_MS", "CompactionStyle", "Compression", "LogProtocol", "Settings"]
