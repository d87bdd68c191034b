"""The database's clock against a process's own: leaps are found whatever the weather, and nothing else is."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import clock

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NONE = timedelta()
TRUSTED = clock.Stored()


@dataclasses.dataclass
class Scene:
    """A database and one process that reads its clock now and then."""

    mono: float = 1_000.0
    shows: datetime = START
    stored: clock.Stored = TRUSTED
    projection: clock.Projection | None = None

    def wait(self, seconds: float, *, rate: float = 1.0) -> None:
        """Time goes by; `rate` is how fast the database's clock runs."""
        self.mono += seconds
        self.shows += timedelta(seconds=seconds * rate)

    def leap(self, by: timedelta) -> None:
        self.shows += by

    def read(self, *, took: float = 0.01, waited: float = 0.0) -> timedelta:
        """One reading: `waited` seconds before the clock was looked at, `took` after it."""
        self.wait(waited)
        shows, before = self.shows, self.mono - waited
        self.wait(took)
        reading = clock.Reading(shows, self.stored, before, self.mono)
        self.projection, jump = clock.observe(self.projection, reading)
        return jump

    def store(self, jump: timedelta) -> None:
        """As this process does, which then knows of it."""
        self.stored = clock.Stored(self.stored.with_jump(jump), self.shows)
        if self.projection is not None:
            self.projection = dataclasses.replace(self.projection, stored=self.stored)

    def store_elsewhere(self, jump: timedelta) -> None:
        self.stored = clock.Stored(self.stored.with_jump(jump), self.shows)

    def believe(self) -> None:
        self.stored = dataclasses.replace(self.stored, step=None)

    @property
    def time(self) -> datetime:
        return self.stored.time_at(self.shows)


@pytest.fixture
def scene() -> Scene:
    one = Scene()
    assert one.read() == NONE
    one.wait(2)
    return one


def near(found: timedelta, wanted: timedelta) -> bool:
    return abs(found - wanted) < timedelta(seconds=1)


@pytest.mark.parametrize("leap", [HOUR, -HOUR, timedelta(seconds=31), timedelta(seconds=-31), timedelta(days=400)])
def test_a_leap_is_found_in_both_directions(scene: Scene, leap: timedelta) -> None:
    scene.leap(leap)
    assert near(scene.read(), leap)


@pytest.mark.parametrize("leap", [timedelta(seconds=29), timedelta(seconds=-29), NONE])
def test_less_than_half_a_minute_is_none(scene: Scene, leap: timedelta) -> None:
    scene.leap(leap)
    assert scene.read() == NONE


def test_until_it_is_stored_it_is_found_again(scene: Scene) -> None:
    scene.leap(HOUR)
    assert near(scene.read(), HOUR)
    scene.wait(0.2)
    assert near(scene.read(), HOUR)


def test_once_it_is_stored_time_goes_on_as_before(scene: Scene) -> None:
    before = scene.time
    scene.leap(HOUR)
    scene.store(scene.read())
    assert near(scene.time - before, NONE)
    for _ in range(100):
        scene.wait(2)
        assert scene.read() == NONE


@pytest.mark.parametrize("leap", [HOUR, -HOUR])
def test_an_undone_step_leaves_nothing(scene: Scene, leap: timedelta) -> None:
    scene.leap(leap)
    scene.store(scene.read())
    scene.wait(20)
    scene.leap(-leap)
    undone = scene.read()
    assert near(undone, -leap)
    scene.store(undone)
    assert scene.stored.step is None
    assert scene.read() == NONE


def test_steps_in_a_row_add_up(scene: Scene) -> None:
    for leap in (HOUR, timedelta(minutes=5), -2 * HOUR):
        scene.leap(leap)
        scene.store(scene.read())
        scene.wait(5)
    assert scene.stored.step is not None
    assert near(scene.stored.step, timedelta(minutes=-55))


def test_small_leaps_in_a_row_add_up_too(scene: Scene) -> None:
    found = []
    for _ in range(4):
        scene.leap(timedelta(seconds=20))
        found.append(scene.read())
        scene.wait(2)
    assert found[0] == NONE
    assert found[-1] > clock.TOLERANCE


@pytest.mark.parametrize("rate", [0.92, 0.9995, 1.0005, 1.083])
def test_a_clock_that_is_slewed_is_followed(scene: Scene, rate: float) -> None:
    for _ in range(1_800):
        scene.wait(2, rate=rate)
        assert scene.read() == NONE
    scene.leap(HOUR)
    assert near(scene.read(), HOUR)


def test_a_long_silence_allows_for_drift_and_no_more(scene: Scene) -> None:
    scene.wait(86_400, rate=1.0002)
    assert scene.read() == NONE
    scene.wait(3_600)
    scene.leap(timedelta(minutes=2))
    assert scene.read() > clock.TOLERANCE


@pytest.mark.parametrize(("waited", "took"), [(300, 0.01), (0, 300), (150, 150)])
def test_a_reading_that_took_long_is_no_leap(scene: Scene, waited: float, took: float) -> None:
    assert scene.read(waited=waited, took=took) == NONE
    assert scene.read() == NONE


def test_a_first_reading_that_took_long_is_made_precise_by_the_next() -> None:
    scene = Scene()
    assert scene.read(took=300) == NONE
    assert scene.read() == NONE
    scene.leap(timedelta(seconds=40))
    assert scene.read() > clock.TOLERANCE


def test_a_leap_in_a_reading_that_took_long_is_found_when_it_is_longer(scene: Scene) -> None:
    scene.leap(HOUR)
    assert near(scene.read(waited=5, took=5), HOUR - timedelta(seconds=5))


def test_a_process_that_was_stopped_sees_no_leap(scene: Scene) -> None:
    scene.wait(900)
    assert scene.read() == NONE


def test_a_machine_that_was_suspended_sees_one(scene: Scene) -> None:
    scene.leap(timedelta(minutes=7))  # the monotonic clock stood still
    assert near(scene.read(), timedelta(minutes=7))


def test_another_replica_refutes_a_step_that_only_a_suspended_one_saw(scene: Scene) -> None:
    scene.wait(100)
    scene.read()
    scene.stored = clock.Stored(timedelta(minutes=7), scene.shows)
    refuted = scene.read()
    assert refuted == timedelta(minutes=-7)
    scene.store(refuted)
    assert scene.stored.step is None


def test_who_began_after_the_leap_refutes_nothing() -> None:
    scene = Scene()
    scene.leap(HOUR)
    scene.read()
    scene.wait(2)
    scene.store_elsewhere(HOUR)
    assert scene.read() == NONE
    scene.wait(2)
    assert scene.read() == NONE


def test_a_step_that_another_replica_stored_is_not_noticed_twice(scene: Scene) -> None:
    scene.leap(HOUR)
    scene.store_elsewhere(HOUR)
    assert scene.read() == NONE


def test_a_leap_right_after_another_was_stored_is_found(scene: Scene) -> None:
    scene.leap(HOUR)
    scene.store_elsewhere(HOUR)
    scene.wait(1)
    scene.leap(timedelta(minutes=-20))
    assert near(scene.read(), timedelta(minutes=-20))


@pytest.mark.parametrize("leap", [HOUR, -HOUR])
def test_a_believed_step_is_not_noticed_again(scene: Scene, leap: timedelta) -> None:
    scene.leap(leap)
    scene.store(scene.read())
    assert scene.read() == NONE
    scene.believe()
    scene.wait(2)
    assert scene.read() == NONE
    scene.leap(leap)
    assert near(scene.read(), leap)


def test_who_slept_over_a_step_and_its_confirmation_takes_it_as_it_is(scene: Scene) -> None:
    scene.wait(900)
    scene.leap(HOUR)
    scene.stored = clock.Stored(None, scene.shows - timedelta(minutes=10))
    assert scene.read() == NONE
    assert scene.read() == NONE


def test_a_pause_ends_after_ten_minutes_by_the_clock_after_the_step() -> None:
    stored = clock.Stored(-HOUR, START)
    assert stored.ends_at() == START + timedelta(minutes=10)
    assert clock.Stored(None, START).ends_at() is None


def test_who_begins_before_a_step_was_noticed_by_the_clock_drops_it() -> None:
    scene = Scene(stored=clock.Stored(HOUR, START + timedelta(minutes=50)))
    dropped = scene.read()
    assert dropped == -HOUR
    scene.store(dropped)
    assert scene.read() == NONE


def test_a_step_noticed_in_the_future_is_void() -> None:
    assert clock.Stored(HOUR, START).is_void(START - timedelta(minutes=1))
    assert not clock.Stored(HOUR, START).is_void(START - timedelta(seconds=10))
    assert not clock.Stored(None, START).is_void(START - HOUR)


def test_every_time_is_in_whole_milliseconds(scene: Scene) -> None:
    scene.leap(HOUR + timedelta(microseconds=123_456))
    assert scene.read() % timedelta(milliseconds=1) == NONE


@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.floats(0, 600),
            strategies.floats(0.95, 1.05),
            strategies.floats(0, 20),
            strategies.floats(0, 20),
        ),
        max_size=40,
    ),
    strategies.sampled_from([1, -1]),
    strategies.floats(100, 1e7),
)
def test_no_false_alarm_and_none_missed(
    readings: list[tuple[float, float, float, float]], sign: int, leap: float
) -> None:
    scene = Scene()
    for gap, rate, waited, took in readings:
        for _ in range(int(gap // 2) + 1):  # a replica reads the clock every two seconds
            scene.wait(2, rate=rate)
            assert scene.read() == NONE
        assert scene.read(waited=waited, took=took) == NONE
    scene.read()
    scene.wait(2)
    scene.leap(timedelta(seconds=sign * leap))
    found = scene.read().total_seconds()
    assert abs(found - sign * leap) < 45
    assert abs(found) > 30
