"""Who is alive, and who runs what: the tables `workers` and `claims`, the only ones that workers write.

Statements only, each a function that takes a connection, runs one statement and never commits; give it a connection in
autocommit, unless it is to be part of something larger. Every time is the database's clock. Start with `values`.
"""

from frameledger_services.claims.claiming import claim_calls, claim_runs
from frameledger_services.claims.keeping import finish, forget, next_attempt, release, release_all_but
from frameledger_services.claims.missed import missed_calls, missed_runs
from frameledger_services.claims.taking_over import finish_over, take_over_calls, take_over_runs
from frameledger_services.claims.untaken import OpenWork, Untaken, open_work, untaken_calls, untaken_runs
from frameledger_services.claims.values import (
    Claimed,
    ClaimedCall,
    ClaimedRun,
    Claiming,
    Finish,
    Heartbeat,
    Kind,
    Offer,
    WorkerDeadError,
)
from frameledger_services.claims.workers import bury, heartbeat, leave, offer_again, reconnected, register

__all__ = [
    "Claimed",
    "ClaimedCall",
    "ClaimedRun",
    "Claiming",
    "Finish",
    "Heartbeat",
    "Kind",
    "Offer",
    "OpenWork",
    "Untaken",
    "WorkerDeadError",
    "bury",
    "claim_calls",
    "claim_runs",
    "finish",
    "finish_over",
    "forget",
    "heartbeat",
    "leave",
    "missed_calls",
    "missed_runs",
    "next_attempt",
    "offer_again",
    "open_work",
    "reconnected",
    "register",
    "release",
    "release_all_but",
    "take_over_calls",
    "take_over_runs",
    "untaken_calls",
    "untaken_runs",
]
