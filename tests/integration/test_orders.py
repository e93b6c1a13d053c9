"""The example of orders: a view of two collections, whose processes are killed, is right at every time."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slices import slice_seed

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "orders" / "run.py"


def test_the_example_of_orders_is_right_at_every_time(request: pytest.FixtureRequest) -> None:
    seconds = 60 if request.config.getoption("--full") else 7
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", str(seconds), "--seed", str(slice_seed())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds + 100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    said = r"(\d+) processes were killed, (\d+) of them the view; it equals a recomputation at all (\d+) times"
    found = re.search(said, done.stdout)
    assert found, done.stdout
    killed, views, times = map(int, found.groups())
    assert killed >= views >= 1, "the view was killed, and what another process of it went on with is right"
    assert times > 20


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
def test_a_signal_ends_the_example_and_all_its_processes_without_a_word(
    signals: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "60", "--url", str(tmp_path / "orders")]
    heard = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    ) as example:
        assert example.stdout is not None
        assert example.stdout.readline().startswith("at ")  # the view runs
        assert len(processes_of(tmp_path)) >= 4  # one may be killed just now
        for number in signals:
            example.send_signal(number)
            time.sleep(0.01)  # it is ending
        _, err = example.communicate(timeout=60)
    assert (example.returncode, err) == (128 + signals[0], "")
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[int]:
    """Those that were given a path in ``folder``."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if f"{folder}/" in line]
