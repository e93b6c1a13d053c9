"""``python -m slate_async.cli`` is the ``slate`` command."""

from slate_async.cli import main

main()
