"""The life of a worker: effects off their topic, claimed, done in lanes; heartbeats, cancellations, drain.

Start with `worker`. `job` is what a service's own code is given, `publisher` how it speaks.
"""

from frameledger_services.work.background import BackgroundService
from frameledger_services.work.job import Ending, Job, Perform, Session, StopReason
from frameledger_services.work.kinds import CALLS, RUNS, JobKind
from frameledger_services.work.lease import Lease, LeaseLostError
from frameledger_services.work.publisher import Publisher
from frameledger_services.work.worker import Worker

__all__ = [
    "CALLS",
    "RUNS",
    "BackgroundService",
    "Ending",
    "Job",
    "JobKind",
    "Lease",
    "LeaseLostError",
    "Perform",
    "Publisher",
    "Session",
    "StopReason",
    "Worker",
]
