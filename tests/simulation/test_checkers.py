"""The checkers, proved by histories that may not have happened."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from tests.simulation import checkers
from tests.simulation.checkers import Violation, check_history
from tests.simulation.history import History, Kind, Write
from tests.simulation.linearizability import NEVER, RegisterOp, SearchTooLargeError, linearizable


class Clock:
    """One tick a look."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


def write(history: History, number: int, *, writer: str = "a", epoch: int = 1, acked: bool = True) -> Write:
    """A write of its own value to key ``k`` under the sequence number ``number``."""
    made = history.begin(writer, epoch, {b"k": b"v%d" % number})
    made.seq = number
    if acked:
        history.ack(made)
    return made


def good(writes: int = 5) -> History:
    """Five acknowledged writes of one writer, seen by a follower at every length, then at the end."""
    history = History(Clock())
    history.view("a", Kind.OPENED, [], {}, epoch=1)
    for number in range(1, writes + 1):
        write(history, number)
        seen = [(seq, seq) for seq in range(1, number + 1)]
        history.view("follower", Kind.DURABLE, seen, {b"k": b"v%d" % number})
        start = history.now()
        history.read("a", b"k", b"v%d" % number, start)
    history.view("end", Kind.FINAL, [(seq, seq) for seq in range(1, writes + 1)], {b"k": b"v%d" % writes})
    return history


def expect(history: History, kind: str, checker: Callable[[History], None] = check_history) -> None:
    """The checker must object, with that kind."""
    with pytest.raises(Violation) as raised:
        checker(history)
    assert raised.value.kind == kind


def end(history: History, *numbers: int, value: bytes | None = None) -> None:
    """The final state: these writes under their own numbers."""
    values = {} if not numbers else {b"k": b"v%d" % numbers[-1] if value is None else value}
    history.view("end", Kind.FINAL, [(number, number) for number in numbers], values)


def test_a_good_history_passes() -> None:
    check_history(good())
    check_history(good(1))


def test_a_history_needs_an_end() -> None:
    history = History(Clock())
    with pytest.raises(ValueError, match="no final view"):
        check_history(history)


def test_an_acknowledged_write_is_lost() -> None:
    history = History(Clock())
    write(history, 1)
    write(history, 2)
    end(history, 1)
    expect(history, "lost")


def test_a_write_that_was_not_acknowledged_may_be_lost_or_survive() -> None:
    for survivors in ((1,), (1, 2)):
        history = History(Clock())
        write(history, 1)
        write(history, 2, acked=False)
        end(history, *survivors)
        check_history(history)


def test_a_write_survives_under_another_number() -> None:
    history = History(Clock())
    write(history, 1)
    history.view("end", Kind.FINAL, [(1, 7)], {b"k": b"v1"})
    expect(history, "renumbered")
    history = History(Clock())
    write(history, 1, acked=False)
    history.view("end", Kind.FINAL, [(1, 7)], {b"k": b"v1"})
    expect(history, "renumbered")


def test_a_refused_write_shows() -> None:
    history = History(Clock())
    write(history, 1, acked=False).refused = True
    end(history, 1)
    expect(history, "refused")


def test_a_write_nobody_made_shows() -> None:
    history = History(Clock())
    end(history, 1)
    expect(history, "invented")


def test_a_hole() -> None:
    history = History(Clock())
    for number in (1, 2, 3):
        write(history, number, acked=False)
    end(history, 1, 3)
    expect(history, "hole")


def test_two_writers_each_lose_their_tail_only() -> None:
    history = History(Clock())
    write(history, 1, writer="a")
    write(history, 2, writer="a", acked=False)
    made = history.begin("b", 2, {b"k": b"w"})
    made.seq = 2  # the number of the lost write is given again
    history.view("end", Kind.FINAL, [(1, 1), (3, 2)], {b"k": b"w"})
    check_history(history)


def test_a_follower_saw_what_did_not_survive() -> None:
    history = good()
    write(history, 6, acked=False)
    history.view("follower", Kind.DURABLE, [(seq, seq) for seq in range(1, 7)], {b"k": b"v6"})
    end(history, 1, 2, 3, 4, 5)
    expect(history, "order")


def test_a_follower_saw_a_gap() -> None:
    history = good()
    history.view("follower", Kind.DURABLE, [(1, 1), (3, 3)], {b"k": b"v3"})
    expect(history, "order")


def test_a_memory_view_may_hold_own_writes_that_were_undone() -> None:
    def history_with(tail_writer: str) -> History:
        history = History(Clock())
        write(history, 1, writer="a")
        write(history, 2, writer=tail_writer, acked=False)
        history.view("a", Kind.MEMORY, [(1, 1), (2, 2)], {b"k": b"v2"})
        end(history, 1)
        return history

    check_history(history_with("a"))
    expect(history_with("b"), "order")


def test_a_memory_view_with_a_survivor_after_what_was_undone() -> None:
    history = History(Clock())
    write(history, 1, writer="a", acked=False)
    write(history, 2, writer="b")
    history.view("a", Kind.MEMORY, [(1, 1), (2, 2)], {b"k": b"v2"})
    end(history, 2)
    expect(history, "order")


def test_two_writes_under_one_number() -> None:
    history = History(Clock())
    write(history, 1)
    write(history, 1)
    history.view("end", Kind.FINAL, [(1, 1), (2, 1)], {b"k": b"v1"})
    expect(history, "one-seq")


def test_one_write_under_two_numbers() -> None:
    history = History(Clock())
    write(history, 1)
    history.view("end", Kind.FINAL, [(1, 1), (1, 2)], {b"k": b"v1"})
    expect(history, "two-seqs", checkers.check_order)


def test_a_deleted_value_is_back() -> None:
    history = History(Clock())
    write(history, 1)
    deletion = history.begin("a", 1, {b"k": None})
    deletion.seq = 2
    history.ack(deletion)
    end(history, 1, 2, value=b"v1")
    expect(history, "value")
    history.view("end", Kind.FINAL, [(1, 1), (2, 2)], {})
    history.views.pop(0)
    check_history(history)


def test_a_value_is_missing() -> None:
    history = good()
    history.view("follower", Kind.DURABLE, [(1, 1)], {})
    expect(history, "value")


def test_two_writers_open_one_epoch() -> None:
    history = good()
    history.view("b", Kind.OPENED, [], {}, epoch=1)
    expect(history, "epoch")


def test_a_take_over_misses_what_was_acknowledged() -> None:
    history = good()
    history.view("b", Kind.OPENED, [(seq, seq) for seq in range(1, 5)], {b"k": b"v4"}, epoch=2)
    expect(history, "inheritance")


def test_a_takeover_misses_what_is_acknowledged_to_an_older_writer_only_afterwards() -> None:
    history = History(Clock())
    write(history, 1)
    late = write(history, 2, acked=False)
    history.view("b", Kind.OPENED, [(1, 1)], {b"k": b"v1"}, epoch=2)
    history.ack(late)
    end(history, 1, 2)
    expect(history, "inheritance")


def test_an_answer_that_comes_late_is_no_second_live_epoch() -> None:
    history = History(Clock())
    slow = write(history, 1, acked=False)
    history.view("b", Kind.OPENED, [(1, 1)], {b"k": b"v1"}, epoch=2)
    write(history, 2, writer="b", epoch=2)
    history.ack(slow)
    end(history, 1, 2)
    check_history(history)


def zombie(history: History) -> None:
    """A write of epoch 1 begins now and is acknowledged and kept."""
    made = history.begin("a", 1, {b"k": b"zombie"})
    made.seq = 1
    history.ack(made)


def test_a_zombie_acknowledges_a_write_begun_after_it_was_fenced() -> None:
    history = History(Clock())
    history.view("b", Kind.OPENED, [(1, 1)], {}, epoch=2)
    zombie(history)
    expect(history, "epoch", checkers.check_epochs)


def test_a_zombie_acknowledges_a_write_begun_after_a_later_epoch_acknowledged() -> None:
    history = History(Clock())
    write(history, 2, writer="b", epoch=2)
    zombie(history)
    expect(history, "epoch", checkers.check_epochs)


def test_a_stale_confirmed_read() -> None:
    history = good()
    history.read("old", b"k", b"v4", history.now())
    end(history, 1, 2, 3, 4, 5)
    expect(history, "linearizability")


def test_a_confirmed_read_of_nothing_after_a_write() -> None:
    history = good()
    history.read("old", b"k", None, history.now())
    end(history, 1, 2, 3, 4, 5)
    expect(history, "linearizability")


def test_reads_that_go_back_while_a_write_is_under_way() -> None:
    history = History(Clock())
    write(history, 1)
    write(history, 2, acked=False)
    history.read("x", b"k", b"v2", history.now())
    history.read("y", b"k", b"v1", history.now())
    end(history, 1, 2)
    expect(history, "linearizability")


def test_a_snapshot_changes() -> None:
    history = good()
    history.snapshot_read("s", "get k", b"v1")
    history.snapshot_read("s", "get k", b"v1")
    history.snapshot_read("t", "get k", b"v2")
    check_history(history)
    history.snapshot_read("s", "get k", b"v2")
    expect(history, "snapshot")


# ---- linearizability alone


def w(value: bytes | None, start: float, finish: float = NEVER) -> RegisterOp:
    """A write."""
    return RegisterOp("write", value, start, finish)


def r(value: bytes | None, start: float, finish: float) -> RegisterOp:
    """A read."""
    return RegisterOp("read", value, start, finish)


@pytest.mark.parametrize(
    ("ops", "verdict"),
    [
        ([], True),
        ([r(None, 0, 1)], True),
        ([r(b"x", 0, 1)], False),
        ([w(b"x", 0, 10), r(None, 1, 2), r(b"x", 3, 4)], True),
        ([w(b"x", 0, 10), r(b"x", 1, 2), r(None, 3, 4)], False),
        ([w(b"x", 0), r(None, 1, 2), r(b"x", 30, 40)], True),
        ([w(b"x", 0), w(b"y", 1, 2), r(b"y", 3, 4), r(b"x", 5, 6)], True),
        ([w(b"x", 0), w(b"y", 1, 2), r(b"x", 3, 4), r(b"y", 5, 6)], False),
        ([w(b"x", 0, 1), w(None, 2), r(b"x", 3, 4), r(None, 5, 6), r(b"x", 7, 8)], False),
        ([w(b"x", 0, 1), w(None, 2, 3), r(None, 4, 5)], True),
        ([w(b"x", 5, 6), r(b"x", 0, 1)], False),
        ([w(b"x", 0, 3), w(b"y", 1, 4), r(b"x", 5, 6), r(b"y", 5, 6)], False),
    ],
)
def test_small_histories(ops: list[RegisterOp], verdict: bool) -> None:
    assert linearizable(ops) is verdict


def by_brute_force(ops: list[RegisterOp]) -> bool:
    """Try every order of every choice of the writes without an answer."""
    required = [op for op in ops if op.end != NEVER]
    optional = [op for op in ops if op.end == NEVER and op.kind == "write"]
    for count in range(len(optional) + 1):
        for chosen in itertools.combinations(optional, count):
            for order in itertools.permutations([*required, *chosen]):
                if explains(order):
                    return True
    return False


def explains(order: tuple[RegisterOp, ...]) -> bool:
    """Whether an order respects real time and every read."""
    value, latest_start = None, -math.inf
    for op in order:
        if op.end < latest_start:
            return False
        latest_start = max(latest_start, op.start)
        if op.kind == "write":
            value = op.value
        elif op.value != value:
            return False
    return True


def test_random_histories_agree_with_brute_force() -> None:
    verdicts = []
    for seed in range(400):
        rng = random.Random(seed)
        ops: list[RegisterOp] = []
        for number in range(rng.randint(2, 6)):
            start = rng.uniform(0, 10)
            finish = start + rng.uniform(0, 4)
            if rng.random() < 0.5:
                value = None if rng.random() < 0.3 else b"%d" % number
                ops.append(w(value, start, NEVER if rng.random() < 0.3 else finish))
            else:
                values = [op.value for op in ops if op.kind == "write"]
                ops.append(r(rng.choice([*values, None]), start, finish))
        verdicts.append(linearizable(ops))
        assert verdicts[-1] is by_brute_force(ops), f"seed {seed}: {ops}"
    assert 50 < sum(verdicts) < 350


def test_a_long_history_is_quick_and_a_hopeless_one_ends() -> None:
    rng, ops, value = random.Random(1), list[RegisterOp](), None
    for number in range(400):
        start = number + rng.uniform(-3, 0)
        if number % 2:
            value = b"%d" % number
            ops.append(w(value, start, number + rng.uniform(0, 1)))
        else:
            ops.append(r(value, number, number + 0.5))
    linearizable(ops, max_states=20_000)
    tangled = [w(b"%d" % number, 0, 100) for number in range(30)] + [r(b"none", 0, 100)]
    with pytest.raises(SearchTooLargeError):
        linearizable(tangled, max_states=5_000)
