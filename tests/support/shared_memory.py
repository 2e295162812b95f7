"""Lists the shared memory segments that processes created. PostgreSQL has one, and a killed server leaves it behind."""

from frameledger_services.embedded import postgres_remains


def segments_of(*pids: int) -> set[int]:
    """Returns the numbers of the segments that these processes created, without those of other servers on this machine.
    None are returned where the system does not list them."""
    if not postgres_remains.SEGMENTS.exists():
        return set()
    head, *rows = map(str.split, postgres_remains.SEGMENTS.read_text(encoding="ascii").splitlines())
    number, made_by = head.index("shmid"), head.index("cpid")
    return {int(row[number]) for row in rows if int(row[made_by]) in pids}
