"""Shared memory that processes made, as the machine lists it: PostgreSQL has some, and what is killed leaves it."""

from frameledger_services.embedded import postgres_remains


def segments_of(*pids: int) -> set[int]:
    """Returns the numbers of the segments that these processes made; none where that cannot be known. Other servers of
    this machine have theirs."""
    if not postgres_remains.SEGMENTS.exists():
        return set()
    head, *rows = map(str.split, postgres_remains.SEGMENTS.read_text(encoding="ascii").splitlines())
    number, made_by = head.index("shmid"), head.index("cpid")
    return {int(row[number]) for row in rows if int(row[made_by]) in pids}
