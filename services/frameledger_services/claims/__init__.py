"""Which workers are alive, and what each has claimed: the tables `workers` and `claims`, the only ones that workers
write.

The functions here take a connection, run one statement and never commit; give them a connection in autocommit, unless
the statement is part of a larger transaction. All times are of the database's clock. Start with `values`.

**A database that loses its latest commits.** An asynchronous standby that is promoted lacks the latest commits of the
old primary. The log has lost nothing, and the fold continues from the state of the standby's tables to the same rows;
but claims are not on the log. So claims alone do not decide which worker does what:

- A claim has an attempt above every one that is folded, and a random token. Frames and their ids name the token, so a
  worker can only repeat frames of its own.
- Of two claims with the same attempt, one start counts (rule RA5.claim): for a run, and for a call that is safe to
  retry, the later one on the log; for any other call the first one. Frames under the other claim do not count.
- If another worker's start was folded in place of a worker's own, its heartbeat reports that (`lost`), and it releases
  the work, which is claimed with the next attempt. If it had already finished, the work is claimed a lease later
  (`rules.claimable_run`, `rules.claimable_call`), and so is a running call without any claim.

What happens to a lost claim of A when B (which may be A itself) claims the same work while no more of A is folded than
the table says:

| A had | a run | an unsafe call |
|---|---|---|
| claimed | B answers | B runs it |
| sent its start, after B's | A's replaces B's; B gets `lost` and begins the next | B's counts: A's gate stays closed |
| sent its start, before B's | B's replaces A's | A's counts: B's gate stays closed, B settles as ambiguous |
| its start folded | B answers with the next attempt | B waits a lease, and settles as ambiguous |
| begun its handler | | its start was folded, and is the first on the log: as the two rows above |
| sent its end, before B's start | the run is closed when that is folded | the call is settled when that is folded |
| sent its end, after B's start | ignored: it names A's claim | counts if A's start does, and B did not settle it |

A gate reads the start that has the id of its own token, so of all claims of a call it opens for one, on the old primary
and on the new one: both fold the same log.
"""

from frameledger_services.claims.attention import NeedsAttention, calls_needing_attention
from frameledger_services.claims.claiming import claim_calls, claim_runs
from frameledger_services.claims.held import finish, next_attempt, purge, release, release_all_but
from frameledger_services.claims.takeover import finish_over, take_over_calls, take_over_runs
from frameledger_services.claims.unclaimed import unclaimed_calls, unclaimed_runs
from frameledger_services.claims.unserved import OpenWork, Unserved, open_work, unserved_calls, unserved_runs
from frameledger_services.claims.values import (
    Claimed,
    ClaimedCall,
    ClaimedRun,
    ClaimResult,
    Finish,
    Heartbeat,
    Kind,
    Registration,
    WorkerDeadError,
)
from frameledger_services.claims.workers import (
    heartbeat,
    leave,
    may_judge,
    reap_workers,
    reconnected,
    register,
    registered_offers,
    update_registration,
)

__all__ = [
    "ClaimResult",
    "Claimed",
    "ClaimedCall",
    "ClaimedRun",
    "Finish",
    "Heartbeat",
    "Kind",
    "NeedsAttention",
    "OpenWork",
    "Registration",
    "Unserved",
    "WorkerDeadError",
    "calls_needing_attention",
    "claim_calls",
    "claim_runs",
    "finish",
    "finish_over",
    "heartbeat",
    "leave",
    "may_judge",
    "next_attempt",
    "open_work",
    "purge",
    "reap_workers",
    "reconnected",
    "register",
    "registered_offers",
    "release",
    "release_all_but",
    "take_over_calls",
    "take_over_runs",
    "unclaimed_calls",
    "unclaimed_runs",
    "unserved_calls",
    "unserved_runs",
    "update_registration",
]
