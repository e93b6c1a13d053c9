"""The knobs of a database: `Settings`.

* `settings`: the class, what it checks, and its sources' order
* `writing`, `storing`, `operating`: the settings themselves, by subject
* `fields`: what each of them is made of
* `sources`: environment variables and TOML files
"""

from slate_async.settings.fields import DAY_MS, CompactionStyle, Compression, LogProtocol
from slate_async.settings.settings import Settings

__all__ = ["DAY_MS", "CompactionStyle", "Compression", "LogProtocol", "Settings"]
