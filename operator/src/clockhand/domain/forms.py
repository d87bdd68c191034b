"""What the API server can see of a due rule: the mistakes that are made most, as regular expressions.

They are in the syntax that RE2 and Python share, and refuse nothing that the parser accepts. Each has the parser's
sentence, or one like it, so that `kubectl apply` says where it was typed what a condition would say later.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from clockhand import errors
from clockhand.domain import cron, instants, intervals, quantities

_GAP = r"[ \t\r\n]"
_WORD = r"[^ \t\r\n]"
_AT_LEAST_100 = "[1-9][0-9]{2,}"


@dataclass(frozen=True, slots=True)
class Form:
    """A text matches `pattern`, or must not (`wanted` is False); `sentence` follows the name of the field."""

    pattern: str
    sentence: str
    wanted: bool = False

    def finds(self, text: str) -> bool:
        """Whether the pattern is found in `text` as RE2 reads it, whose `$` is the very end."""
        return _compiled(self.pattern).search(text) is not None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("$", r"\Z"))  # before a last newline Python finds `$` too


def _out_of_range(place: int, numbers: str, *, name: str, allowed: str) -> Form:
    before, after = f"{_WORD}+{_GAP}+" * place, f"{_GAP}+{_WORD}+" * (4 - place)
    number = f"({_WORD}*[,(-])?0*({numbers})([^0-9 \\t\\r\\n]{_WORD}*)?"
    sentence = f"is out of range in its {name}: write a number from {allowed}"
    return Form(f"^{_GAP}*{before}{number}{after}{_GAP}*$", sentence)


def check(texts: Iterable[tuple[str, str | None, Form]]) -> None:
    """Refuse the first text without its form; each comes with the path of its field in the spec."""
    for field, text, form in texts:
        if text is not None and form.finds(text) != form.wanted:
            raise errors.InvalidInput(f"spec.{field}", form.sentence)


CRON = (
    Form(
        r"^[ -~\t\r\n]*$",
        "holds a character that is not plain ASCII: write ASCII digits, letters and spaces",
        wanted=True,
    ),
    Form(
        f"(?i)^{_GAP}*(cron_)?tz=",
        "carries a time zone: leave the prefix out and set spec.timeZone",
    ),
    Form(
        f"(?i)^{_GAP}*@every",
        "cannot be @every: leave it out and set spec.every, such as 90m",
    ),
    Form(
        f"(?i)^{_GAP}*@reboot",
        "cannot be @reboot, which means nothing in a cluster: write the time at which to run, such as 0 2 * * *",
    ),
    Form(
        f"(?i)^{_GAP}*([^@ \\t\\r\\n]|$|@every|@reboot|({'|'.join(cron.NAMED)}){_GAP}*$)",
        f"is not a known name: write 5 fields or one of {', '.join(cron.NAMED)}",
        wanted=True,
    ),
    Form(
        f"(?i)^{_GAP}*(@|(cron_)?tz=)|^{_GAP}*({_WORD}+{_GAP}+){{4}}{_WORD}+{_GAP}*$",
        "needs 5 fields: write minute, hour, day of month, month, day of week, without seconds or a year",
        wanted=True,
    ),
    Form(
        r"(^|[ \t\r\n,]),|,([ \t\r\n]|$)",
        "has a comma with nothing beside it: leave that comma out",
    ),
    Form(
        r"(^|[ \t\r\n,])[+-]",
        "has a number with a sign: write plain numbers",
    ),
    Form(
        r"/0+([ \t\r\n,]|$)",
        "has a step of 0: write a step of 1 or more, or leave it out",
    ),
    _out_of_range(0, f"[6-9][0-9]|{_AT_LEAST_100}", name="minute", allowed="0 to 59"),
    _out_of_range(1, f"2[4-9]|[3-9][0-9]|{_AT_LEAST_100}", name="hour", allowed="0 to 23"),
    _out_of_range(2, f"0|3[2-9]|[4-9][0-9]|{_AT_LEAST_100}", name="day of month", allowed="1 to 31"),
    _out_of_range(3, f"0|1[3-9]|[2-9][0-9]|{_AT_LEAST_100}", name="month", allowed="1 to 12"),
    _out_of_range(4, "[89]|[1-9][0-9]+", name="day of week", allowed="0 to 7"),
    Form(
        f"(?i)^{_GAP}*({_WORD}+{_GAP}+){{2}}(30|31){_GAP}+(0?2|feb){_GAP}+[*?]{_GAP}*$",
        "names a date that never comes, such as 30 February: write a day that its months have",
    ),
)
INTERVAL = (
    Form(f"^{intervals.PATTERN}$", intervals.SENTENCE, wanted=True),
    Form("^[0dhms]*$", intervals.TOO_SHORT),
)
INSTANT = Form(f"^{instants.PATTERN}$", instants.SENTENCE, wanted=True)
_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
HANDLER = Form(
    "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    "is no name of a handler: write letters, digits, dots, dashes and underscores, such as email.send",
    wanted=True,
)
NAMESPACE = Form(
    f"^({_LABEL}|[*])$",
    "is no name of a namespace: write small letters, digits and dashes, or * for all",
    wanted=True,
)
COMMAND = Form(
    "^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$",
    "is no name of a command: write letters, digits, dots, dashes and underscores, such as nightly-report",
    wanted=True,
)
HOST = Form(
    r"^(https?://)?([*]|([*][.])?[^ \t\r\n/:*@\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$",
    "is no host: write one such as api.example.org, *.example.org or http://hooks.example.org:8080, without a path",
    wanted=True,
)
NETWORK = Form(
    "^[0-9a-fA-F:.]+/[0-9]{1,3}$",
    "is no network: write one with its length, such as 10.1.0.0/16 or fd00:1::/32",
    wanted=True,
)
SECRET = Form(
    f"^({_LABEL}[.])*{_LABEL}$",
    "is no name of a Secret: write small letters, digits, dashes and dots",
    wanted=True,
)
IMAGE = Form(r"[ \t\r\n]", "is no name of an image: leave white space out")
CLASS = Form(
    f"^({_LABEL}[.])*{_LABEL}$",
    "is no name of a JobClass: write small letters, digits, dashes and dots, such as batch",
    wanted=True,
)
VARIABLE = Form(
    "^[-._a-zA-Z][-._a-zA-Z0-9]*$",
    "is no name of an environment variable: write letters, digits and underscores, such as REPORT_DAY",
    wanted=True,
)
QUANTITY = Form(
    f"^{quantities.PATTERN}$",
    "is no quantity: write one such as 500m, 2 or 1Gi",
    wanted=True,
)
POOL = Form(
    f"^({_LABEL}/)?{_LABEL}$",
    "is no name of a pool: write small letters, digits and dashes, such as mailers or team-a/mailers",
    wanted=True,
)
