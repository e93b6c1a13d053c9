"""`slate.open` and its kin: the openings of an `Environment`, each in a private one that ends with what it opens.

`Opener` declares the arguments, here and for `slate_async.sync`: a function made of a method keeps its name, arguments
and docstring, for type checkers and for ``help()``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from slate_async.database.environment import Environment
from slate_async.database.handle import Handle
from slate_async.database.opener import Opener
from slate_async.runtime.opening import Opening

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Handle)


def in_private_environment(method: Callable[Concatenate[Environment, P], Opening[H]]) -> Callable[P, Opening[H]]:
    """``method`` of an environment that is made for the call, and closed after what it opens."""

    def opened(*args: P.args, **kwargs: P.kwargs) -> Opening[H]:
        private = Environment()
        return method(private, *args, **kwargs)._ending(private.close)

    return called_like(method, opened, bound=True)


def called_like(
    method: Callable[..., object],
    call: Callable[P, R],
    *,
    bound: bool = False,
    returns: Callable[..., object] | None = None,
) -> Callable[P, R]:
    """``call`` under the name of ``method``, with its arguments and docstring.

    bound: ``call`` takes no ``self``
    returns: the class of what ``call`` returns, if that is another than ``method`` returns

    A call with other arguments raises a `TypeError` that says the name the caller wrote."""
    declared = inspect.signature(method)
    signature = declared.replace(
        parameters=list(declared.parameters.values())[bound:],
        return_annotation=declared.return_annotation if returns is None else returns.__name__,
    )
    name = method.__name__

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        return call(*args, **kwargs)

    checked.__module__, checked.__qualname__ = call.__module__, name
    checked.__dict__["__signature__"] = signature
    if returns is not None:
        checked.__annotations__ = {**method.__annotations__, "return": returns}
    return checked


open = in_private_environment(Opener.open)
open_reader = in_private_environment(Opener.open_reader)
open_admin = in_private_environment(Opener.open_admin)
open_compactor = in_private_environment(Opener.open_compactor)
open_gc = in_private_environment(Opener.open_gc)
open_ingest = in_private_environment(Opener.open_ingest)
open_ingest_task = in_private_environment(Opener.open_ingest_task)
