"""Keys of several parts whose bytes sort as the parts do.

>>> from slate_async import keys
>>> keys.unpack(keys.pack("tenant", 7))
('tenant', 7)
"""

from slate_async.codec.tuple_key import KeyPart, pack, prefix_range, unpack

__all__ = ["KeyPart", "pack", "prefix_range", "unpack"]
