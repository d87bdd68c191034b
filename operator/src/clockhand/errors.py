"""Every error that Clockhand raises on purpose; the class says what the caller does next.

::

    ClockhandError
    ├── InvalidInput      tell the user: the sentence names the field (exit code 2, 422, a condition)
    ├── NotFound          the thing is not there (404)
    ├── Conflict          the thing is in another state than the caller thought; read again (409)
    │   └── Changed       it is not as it was when the caller read it (412)
    ├── Stale             this process lost its token or lease: stop, write nothing more
    ├── Refused           the other side will not do it for us, whoever asks again (401, 403)
    ├── Unavailable       try again later, with back-off; carries `retry_after` in seconds where known
    ├── Uncertain         it may or may not have happened: look before doing it again
    └── SchemaMismatch    the database is older or newer than this release: not ready
"""

from __future__ import annotations


class ClockhandError(Exception):
    """Root of all errors raised on purpose."""


class InvalidInput(ClockhandError):
    """Something a user wrote is wrong. `field` is its path, such as `spec.schedule`; the text is one sentence."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field}: {sentence}" if field else sentence)
        self.field = field
        self.sentence = sentence


class NotFound(ClockhandError):
    """The thing asked for does not exist, or not for this caller."""


class Conflict(ClockhandError):
    """The thing is in another state than the caller assumed. `retry_after` is in seconds, where it soon passes."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Changed(Conflict):
    """The thing is another version than the caller named: nothing was done."""


class Stale(ClockhandError):
    """A newer holder exists: the caller stops and writes nothing more."""


class Refused(ClockhandError):
    """The other side will not carry this out, and asking again the same way will not help."""


class Unavailable(ClockhandError):
    """The other side cannot answer now. `retry_after` is in seconds, None where the other side named none."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Uncertain(ClockhandError):
    """The call was sent, its outcome was not seen: look for its effect before repeating it."""


class SchemaMismatch(ClockhandError):
    """The database schema does not fit this release."""
