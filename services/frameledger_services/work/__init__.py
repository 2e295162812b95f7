"""The worker of a service: it claims effects from their topic and runs them as jobs, with heartbeats, cancellations and
a drain at the end.

Start with `worker`. `job` is the interface to a service's own code, and `publisher` publishes its frames.
"""

from frameledger_services.work.background import BackgroundService
from frameledger_services.work.job import Ending, Job, Perform, Session, StopReason, stronger
from frameledger_services.work.kinds import CALLS, RUNS, JobKind
from frameledger_services.work.lease import Lease, LeaseLostError
from frameledger_services.work.publisher import WorkerPublisher, publish_until_accepted
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
    "Session",
    "StopReason",
    "Worker",
    "WorkerPublisher",
    "publish_until_accepted",
    "stronger",
]
