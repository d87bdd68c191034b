"""The REST API from Python: `async with Clockhand() as api`, and then `api.jobs`, `api.runs` and `api.audit()`.

It needs an address and a token, and none of what a server of Clockhand is made of.
"""

from clockhand.client.api import Clockhand as Clockhand
from clockhand.client.fields import JobFields as JobFields
from clockhand.client.jobs import Job as Job
from clockhand.client.jobs import ListedJob as ListedJob
from clockhand.client.runs import Change as Change
from clockhand.domain.resources import Attempt as Attempt
from clockhand.domain.resources import AuditEntry as AuditEntry
from clockhand.domain.resources import BatchAnswer as BatchAnswer
from clockhand.domain.resources import Run as Run
from clockhand.domain.resources import Slot as Slot
from clockhand.domain.resources import Standing as Standing
from clockhand.domain.spec import Backoff as Backoff
from clockhand.domain.spec import CatchUp as CatchUp
from clockhand.domain.spec import Dst as Dst
from clockhand.domain.spec import PodRetention as PodRetention
from clockhand.domain.spec import Retry as Retry
from clockhand.domain.spec import Rule as Rule
from clockhand.errors import Changed as Changed
from clockhand.errors import ClockhandError as ClockhandError
from clockhand.errors import Conflict as Conflict
from clockhand.errors import InvalidInput as InvalidInput
from clockhand.errors import NotFound as NotFound
from clockhand.errors import Refused as Refused
from clockhand.errors import Unavailable as Unavailable
from clockhand.errors import Uncertain as Uncertain
