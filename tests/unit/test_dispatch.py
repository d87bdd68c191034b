"""How many messages are on their way: as many as are read."""

from __future__ import annotations

from clockhand.engine.pools import dispatch

MOST = 100


def test_what_is_read_in_time_has_the_whole_window() -> None:
    flow = dispatch.Flow(MOST)
    for _ in range(5):
        flow.unstarted += 60
        flow.follow(10, old=False, rest=30.0, most=MOST)
        assert (flow.window, flow.unstarted, flow.rests) == (MOST, 10, False)


def test_what_nobody_reads_rests_and_begins_with_one() -> None:
    flow = dispatch.Flow(MOST)
    flow.unstarted = 40
    flow.follow(40, old=True, rest=30.0, most=MOST)
    assert flow.rests
    flow.follow(0, old=False, rest=0.0, most=MOST)  # they are queued again: nothing was read
    flow.rests_until = float("-inf")
    windows = []
    for _ in range(8):
        windows.append(flow.window)
        flow.unstarted += flow.window
        flow.follow(0, old=False, rest=30.0, most=MOST)
    assert windows == [1, 2, 4, 8, 16, 32, 64, MOST]


def test_a_single_message_that_is_not_read_opens_nothing() -> None:
    flow = dispatch.Flow(MOST)
    for _ in range(3):
        flow.unstarted = 1
        flow.follow(1, old=True, rest=0.0, most=MOST)
        flow.follow(0, old=False, rest=0.0, most=MOST)
        assert flow.window == 1


def test_only_a_window_that_is_nearly_full_is_looked_at_often() -> None:
    flow = dispatch.Flow(MOST)
    tight = []
    for unstarted in (0, 50, 51, MOST):
        flow.unstarted = unstarted
        tight.append(flow.is_tight)
    assert tight == [False, False, True, True]
    flow.follow(MOST, old=True, rest=30.0, most=MOST)
    assert not flow.is_tight
