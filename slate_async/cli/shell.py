"""``slate shell``: commands, one a line, on a database that stays open.

The database is open in the thread of `slate_async.sync`; this one reads lines. Ctrl-C ends the command, or the line,
and not the shell.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import typer

import slate_async
from slate_async.cli.arguments import WITH_VALUE, BadCommandLine, hoisted
from slate_async.cli.error_text import explain
from slate_async.cli.exit_codes import OK, USAGE, exit_code
from slate_async.cli.output import Output
from slate_async.cli.session import Session, WritableDatabase
from slate_async.cli.signals import interruptible
from slate_async.errors import InvalidError
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.handle import opened

PROMPT = "slate> "
LEAVE = ("exit", "quit")
REFUSED = frozenset({"shell", "demo", "admin", "destroy"})
"""Commands that have no sense on a database that is open."""


@dataclass(frozen=True, slots=True)
class OpenSession(Session):
    """A session whose database is open, as its writer or to be read."""

    loop: LoopThread
    handle: Any
    writes: bool

    def writing(self, *, create: bool) -> AbstractAsyncContextManager[WritableDatabase]:
        """The writer, if it is open as one."""
        if not self.writes:
            raise InvalidError("this shell reads; start it with --write, which takes the database over")
        return nullcontext(self.handle)

    def reading(self, *, checkpoint: str | None = None, pin: bool = False) -> AbstractAsyncContextManager[Any]:
        """The one that is open, or a reader on a checkpoint."""
        if checkpoint is not None:
            return Session.reading(self, checkpoint=checkpoint, pin=pin)
        return nullcontext(self.handle)

    def scanning(self, *, checkpoint: str | None = None, pin: bool = False) -> AbstractAsyncContextManager[Any]:
        """As `reading`."""
        return self.reading(checkpoint=checkpoint, pin=pin)

    def reader(self) -> AbstractAsyncContextManager[Any]:
        """The one that is open: a writer has a change feed, too."""
        return nullcontext(self.handle)

    def explain(self, error: BaseException) -> str:
        """The database stays as it is: closed, if another process took over."""
        return explain(error, again="leave the shell and start it again")

    def run(self, command: Coroutine[Any, Any, int]) -> int:
        """In the loop of the database that is open."""

        async def refreshed() -> int:
            if not self.writes:
                await self.handle.refresh()
            return await command

        try:
            return self.loop.run(refreshed)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it ends the command, not the shell
            command.close()
            self.report(error)
            return exit_code(error)


def shell(session: Session, group: Any, *, write: bool) -> int:
    """Run lines until the end of the input; the exit code of the last one.

    group: the command line's commands"""
    path, settings = session.database(), session.settings()
    begin: Any = partial(slate_async.open, create=True) if write else partial(slate_async.open_reader, pin=False)
    with interruptible():
        loop, handle = opened(partial(begin, path, metastore=session.metastore, settings=settings))
        held = OpenSession(
            session.path, session.metastore, session.settings_file, session.verbose, session.output, loop, handle, write
        )
        code = OK
        try:
            for line in _lines():
                code = _run(held, group, line)
                sys.stdout.flush()
        finally:
            loop.run(handle.close)
    return code


def _lines() -> Iterator[str]:
    """What is typed, or piped in, until the end."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip() in LEAVE:
                return
            if line.strip():
                yield line
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - editing and history, where there is such a thing
    while True:
        try:
            line = input(PROMPT)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # noqa: T201 - the line that was begun is dropped
            continue
        except EOFError:
            return
        if line.strip() in LEAVE:
            return
        if line.strip():
            yield line


def _run(session: OpenSession, group: Any, line: str) -> int:
    as_json = session.output.as_json
    try:
        words, asked = hoisted(shlex.split(line))
        if asked and not as_json:
            session = replace(session, output=Output(as_json=True))
        name, command, rest = _found(group, [word for word in words if word != "--json"])
        code = command.main(rest, prog_name=name, standalone_mode=False, obj=session)
        return code if isinstance(code, int) else OK
    except BadCommandLine as error:
        session.report(InvalidError(error.format_message()))  # type: ignore[attr-defined]
    except (ValueError, KeyboardInterrupt) as error:  # quotes that are not closed; `InvalidError`
        session.report(error if not isinstance(error, ValueError) else InvalidError(str(error)))
    return USAGE


def _found(group: Any, words: list[str]) -> tuple[str, Any, list[str]]:
    """The command that ``words`` name, and its arguments."""
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if words == ["--help"]:
        names = sorted(name for name in group.commands if name not in REFUSED)
        typer.echo(f"commands: {', '.join(names)}; help COMMAND; {' or '.join(LEAVE)}")
        return "true", _Nothing(), []
    if words and words[0].partition("=")[0] in WITH_VALUE:
        raise InvalidError(f"{words[0].partition('=')[0]} is given where the shell is started, not in it")
    name, command = "", group
    while words and hasattr(command, "commands"):
        inner = command.commands.get(words[0])
        if inner is None or (not name and words[0] in REFUSED):
            raise InvalidError(f"there is no command {f'{name} {words[0]}'.strip()!r} here; try help")
        name, command, words = f"{name} {words[0]}".strip(), inner, words[1:]
    return name, command, words


class _Nothing:
    """A command that was carried out already."""

    def main(self, *_: object, **__: object) -> int:
        """Do nothing."""
        return OK
