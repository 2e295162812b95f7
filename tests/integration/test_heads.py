"""Roots and proofs of a real database: the changes that they detect, and the root, computed a second time here."""

import asyncio
import json
import random
from hashlib import sha256

import psycopg
import pytest
from tests.support.batches import (
    HISTORIES,
    Log,
    database_of_histories,  # noqa: F401  # a fixture
    project,
    value_of,
)
from tests.support.rows import link
from tests.support.tiers import first

from frameledger import heads_file, proofs
from frameledger.frames import LLMContextEraseFrame, encode_frame
from frameledger.proofs import ProofError
from frameledger_services.audit import against, heads
from frameledger_services.cli.audit import verify_files
from frameledger_services.settings import Settings
from frameledger_services.store import frame_pages, leaves
from frameledger_services.store.contexts import NoSuchContextError

RUN = b'{"type":"LLMRunFrame"}'
ODD_IDS = [
    "\U0001f600",
    "\ue000",
    "é",
    "e",
    "E",
    "Z",
    "\x01",
    "a" * 255,
    '"',
    "line\u2028end\n",
    " ",
    "aa",
    "a\tb",
]
"""Ids whose order differs by bytes, by UTF-16 and by language."""


def succeeded(result):
    assert result.exit_code == 0, result.output
    return result.stdout


def root_of(address):
    """Returns the root as our code computes it."""

    async def compute():
        async with heads.snapshot(Settings(database_url=address), "test") as connection:
            return await heads.compute(connection)

    return asyncio.run(compute())


def root_of_the_rows(address):
    """Returns the root as computed here, from the rows and by the documented definitions."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT context_id, version, chain, NULL FROM contexts").fetchall()
        found += connection.execute("SELECT context_id, version, chain, erased_at FROM erasures").fetchall()
    keyed = []
    for context_id, version, chain, erased_at in found:
        name = context_id.encode()
        order = (name, erased_at is None, erased_at, version)
        if erased_at is not None:
            name = sha256(b"erased" + name).digest()
        keyed.append((order, len(name).to_bytes(4) + name + version.to_bytes(8) + chain))
    return merkle([data for _, data in sorted(keyed)])


def merkle(data):
    if len(data) < 2:
        return sha256(b"\x00" + data[0]).digest() if data else sha256().digest()
    k = 1
    while 2 * k < len(data):
        k *= 2
    return sha256(b"\x01" + merkle(data[:k]) + merkle(data[k:])).digest()


def write_heads(command, address, path):
    """The file of `heads --full`, and the root."""
    said = json.loads(succeeded(command(address, "heads", "--full", path, "--json")))
    assert said["file"] == str(path)
    return said["root"]


def compared(address, path):
    """Returns how the database differs from a file of heads that was written earlier."""

    async def compare():
        async with heads.snapshot(Settings(database_url=address), "test") as connection:
            with path.open("rb") as file:
                _, written = heads_file.read(file)
                return [one async for one in against.compare(connection, written)]

    return {
        (one.what, one.context_id, one.version) for one in asyncio.run(compare()) if one.what != "unchanged"
    }


def lines_of(path):
    return path.read_bytes().splitlines()


def talk(*ids, frames=3):
    log = Log()
    for number in range(frames):
        for context_id in ids:
            headers = (("ce_source", b"a/person"),) if number % 2 else ()
            log.add(context_id, RUN + b" " * number, headers=headers)
    return log


def erase(address, *ids):
    with psycopg.connect(address, autocommit=True) as connection:
        for context_id in ids:
            connection.execute("SELECT erase(%s, 'asked for')", (context_id,))


def tamper(address, *statements):
    """Execute statements as a user with all privileges, past the triggers."""
    with psycopg.connect(address) as connection:
        connection.execute("SET session_replication_role = replica")
        for statement, parameters in statements:
            connection.execute(statement, parameters)


def rewrite(address, context_id, version, payload):
    """Rewrite a conversation consistently: the payload of a frame, every later link of the chain, and the head."""
    with psycopg.connect(address) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE frames SET payload = %s::json WHERE context_id = %s AND version = %s",
            (payload, context_id, version),
        )
        chain = sha256(context_id.encode()).digest()
        for number, source, value in connection.execute(
            "SELECT version, source, payload::text FROM frames WHERE context_id = %s ORDER BY version",
            (context_id,),
        ).fetchall():
            chain = link(chain, number, source, value.encode())
            connection.execute(
                "UPDATE frames SET chain = %s WHERE context_id = %s AND version = %s",
                (chain, context_id, number),
            )
        connection.execute("UPDATE contexts SET chain = %s WHERE context_id = %s", (chain, context_id))


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_the_root_is_the_one_that_another_program_computes_from_the_rows(database, monkeypatch, seed):
    monkeypatch.setattr(leaves, "FETCH_ROWS", 3)
    chosen = random.Random(seed)
    assert root_of(database).hash == root_of_the_rows(database) == sha256().digest()
    for _ in range(3):
        ids = chosen.sample(ODD_IDS, 7) + [f"talk-{chosen.randrange(99)}" for _ in range(9)]
        again = Log()
        with psycopg.connect(database) as connection:
            offsets = connection.execute("SELECT partition, max(next_offset) FROM projections GROUP BY 1")
            again._offsets.update(dict(offsets.fetchall()))
        for _ in range(40):
            again.add(chosen.choice(ids), RUN)
        project(database, again.records)
        erase(database, *chosen.sample(ids, 5))

        found = root_of(database)
        assert found.hash == root_of_the_rows(database)
        with psycopg.connect(database) as connection:
            assert found.conversations == value_of(connection, "SELECT count(*) FROM contexts")
            assert found.receipts == value_of(connection, "SELECT count(*) FROM erasures") > 0
            assert found.at <= value_of(connection, "SELECT now()")


def test_the_file_of_all_heads_has_the_root_and_every_leaf(filled, command, tmp_path):
    path = tmp_path / "heads.jsonl"
    root = write_heads(command, filled, path)
    with path.open("rb") as file:
        header, found = heads_file.read(file)
        ids = [one.context_id for one in found]

    assert header.root == root == root_of_the_rows(filled).hex()
    assert header.leaves == len(ids)
    assert ids == sorted(path.stem for path in HISTORIES)
    assert [one.name for one in tmp_path.iterdir()] == ["heads.jsonl"]


def test_a_file_of_heads_that_was_changed_is_refused_at_its_end(filled, command, tmp_path):
    path = tmp_path / "heads.jsonl"
    write_heads(command, filled, path)
    lines = path.read_bytes().splitlines(keepends=True)
    changed = json.loads(lines[3]) | {"version": 10_000}

    for wrong in (
        lines[:-1],
        [*lines[:3], json.dumps(changed).encode(), *lines[4:]],
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines, b"{}"],
    ):
        _, found = heads_file.read(wrong)
        with pytest.raises(heads_file.HeadsFileError):
            list(found)
    with pytest.raises(heads_file.HeadsFileError, match="Line 1 is not one of a file of heads"):
        heads_file.read(lines[1:])


@pytest.mark.parametrize("path", HISTORIES[::5], ids=lambda path: path.stem)
def test_a_proof_of_a_conversation_verifies_without_the_database(
    filled, command, tmp_path, path, monkeypatch
):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", 7)
    file = tmp_path / "proof.jsonl"
    said = json.loads(succeeded(command(filled, "prove", path.stem, "-o", file, "--json")))
    assert said["root"] == root_of_the_rows(filled).hex()

    with file.open("rb") as lines:
        proven = proofs.verify(lines, bytes.fromhex(said["root"]))
    with psycopg.connect(filled) as connection:
        stored = connection.execute(
            "SELECT version, source, payload::text FROM frames WHERE context_id = %s ORDER BY version",
            (path.stem,),
        ).fetchall()
    lines = [json.loads(line) for line in file.read_bytes().split(b"\n")[1:-1]]
    assert [(one["version"], one["source"], one["payload"]) for one in lines] == stored
    assert proven.frame_count == said["frames"] == len(stored)
    assert proven.header.chain == said["chain"]


def test_a_proof_goes_to_standard_output_and_the_root_beside_it(filled, command):
    result = command(filled, "prove", "barge-in")

    assert proofs.verify(succeeded(result).encode().splitlines(keepends=True)).header.context_id == "barge-in"
    assert f"root      {root_of(filled).hash.hex()}" in result.stderr


def test_what_is_not_there_cannot_be_proved(filled, command, tmp_path):
    result = command(filled, "prove", "nobody", "-o", tmp_path / "proof.jsonl")

    assert result.exit_code == 1
    assert str(NoSuchContextError("nobody")) in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_proof_is_written_of_frames_that_do_not_make_the_head(database, command, tmp_path):
    project(database, talk("talk", "other").records)
    file = tmp_path / "proof.jsonl"
    tamper(database, ("UPDATE frames SET source = 'x' WHERE context_id = 'talk' AND version = 2", ()))

    result = command(database, "prove", "talk", "-o", file)
    assert result.exit_code == 1
    assert "The stored frames of 'talk' produce version 3 and the link" in result.stderr
    assert not file.exists()
    succeeded(command(database, "prove", "other", "-o", file))


def test_a_conversation_that_moved_on_continues_what_was_written_down(
    database, command, tmp_path, monkeypatch
):
    monkeypatch.setattr(against, "MAX_LOOKUPS", 2)
    log = talk("a", "b", "c", "d")
    project(database, log.records[:10])
    path = tmp_path / "heads.jsonl"
    write_heads(command, database, path)
    project(database, log.records[10:] + talk("new").records)

    assert compared(database, path) == {("continued", "c", 2), ("continued", "d", 2), ("new", "new", 3)}


def test_a_rewritten_chain_with_its_head_is_found_against_an_older_root_only(database, command, tmp_path):
    project(database, talk("a", "b", "c").records)
    path, proof = tmp_path / "heads.jsonl", tmp_path / "proof.jsonl"
    root = write_heads(command, database, path)
    rewrite(database, "b", 2, '{"type":"LLMRunFrame","said":"another"}')

    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT intact FROM verify_chain('b')") is True
    succeeded(command(database, "prove", "b", "-o", proof))
    assert proofs.verify(lines_of(proof)).frame_count == 3
    with pytest.raises(ProofError, match="another root"):
        proofs.verify(lines_of(proof), bytes.fromhex(root))
    assert compared(database, path) == {("rewritten", "b", 3)}


def test_a_rewritten_chain_is_found_also_when_the_conversation_went_on(database, command, tmp_path):
    log = talk("a", "b")
    project(database, log.records[:4])
    path = tmp_path / "heads.jsonl"
    write_heads(command, database, path)
    project(database, log.records[4:])
    rewrite(database, "b", 1, '{"type":"LLMRunFrame","said":"another"}')

    assert compared(database, path) == {("continued", "a", 2), ("rewritten", "b", 2)}


def test_a_truncated_tail_and_a_conversation_that_is_gone_are_found(database, command, tmp_path):
    project(database, talk("a", "b", "c", "d").records)
    path = tmp_path / "heads.jsonl"
    write_heads(command, database, path)
    tamper(
        database,
        ("DELETE FROM frames WHERE context_id = 'b' AND version = 3", ()),
        (
            "UPDATE contexts SET version = 2, state_version = 2, chain = "
            "(SELECT chain FROM frames WHERE context_id = 'b' AND version = 2) WHERE context_id = 'b'",
            (),
        ),
        ("DELETE FROM frames WHERE context_id = 'd'", ()),
        ("DELETE FROM contexts WHERE context_id = 'd'", ()),
    )

    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT intact FROM verify_chain('b')") is True
    assert compared(database, path) == {("truncated", "b", 3), ("missing", "d", 3)}


def test_an_erased_conversation_keeps_its_leaf_also_when_it_lives_again(database, command, tmp_path):
    log = talk("a", "b", "c", frames=6)
    project(database, log.records[:9])
    before, erased, living = (tmp_path / name for name in ("before", "erased", "living"))
    write_heads(command, database, before)
    with psycopg.connect(database) as connection:
        [(version, chain)] = connection.execute("SELECT version, chain FROM contexts WHERE context_id = 'b'")
    erase(database, "b")
    root = write_heads(command, database, erased)
    assert root == root_of_the_rows(database).hex()
    leaf = {"erased": sha256(b"erasedb").hexdigest(), "version": version, "chain": chain.hex()}
    assert [json.loads(line) for line in lines_of(erased)][2] == leaf
    assert '"b"' not in erased.read_text()
    assert compared(database, before) == {("erased", "b", 3)}

    file = tmp_path / "proof.jsonl"
    succeeded(command(database, "prove", "b", "-o", file))
    assert (
        "receipt of the erased conversation 'b'"
        in proofs.verify(lines_of(file), bytes.fromhex(root)).statement()
    )

    project(database, log.records[9:])
    write_heads(command, database, living)
    assert [json.loads(line) for line in lines_of(living)][2] == leaf
    moved = {("continued", "a", 3), ("continued", "c", 3)}
    assert compared(database, before) == {("erased", "b", 3)} | moved
    assert {one[:2] for one in compared(database, erased)} == {
        ("new", "b"),
        ("continued", "a"),
        ("continued", "c"),
    }
    erase(database, "b")
    assert root_of(database).receipts == 2
    assert root_of(database).hash == root_of_the_rows(database)


def test_a_life_after_an_erasure_is_proved_from_its_receipt_on(database, command, tmp_path):
    log = talk("a", frames=2)
    log.add("a", encode_frame(LLMContextEraseFrame(id="e1", why="asked for")))
    log.add("a", RUN + b"  ")
    project(database, log.records)
    with psycopg.connect(database) as connection:
        [(erased, chain)] = connection.execute("SELECT version, chain FROM erasures")
    file = tmp_path / "proof.jsonl"

    root = json.loads(succeeded(command(database, "prove", "a", "-o", file, "--json")))["root"]

    proven = proofs.verify(lines_of(file), bytes.fromhex(root))
    after = proven.header.after
    assert after is not None
    assert (after.version, after.chain) == (erased, chain.hex())
    assert erased == 3
    assert (proven.frame_count, proven.header.version) == (1, 4)


def test_a_receipt_that_is_gone_and_one_that_says_something_else_are_found(database, command, tmp_path):
    project(database, talk("a", "b", "c").records)
    erase(database, "a")
    path = tmp_path / "heads.jsonl"
    write_heads(command, database, path)
    erase(database, "b", "c")
    tamper(
        database,
        ("DELETE FROM erasures WHERE context_id = 'a'", ()),
        ("UPDATE erasures SET chain = sha256('x') WHERE context_id = 'b'", ()),
        ("UPDATE erasures SET version = 2 WHERE context_id = 'c'", ()),
    )

    assert compared(database, path) == {
        ("receipt_missing", None, 3),
        ("rewritten", "b", 3),
        ("truncated", "c", 3),
    }


def test_a_proof_file_is_verified_by_the_command_without_a_server(filled, command, tmp_path):
    file = tmp_path / "proof.jsonl"
    root = json.loads(succeeded(command(filled, "prove", "barge-in", "-o", file, "--json")))["root"]
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"

    said = command(nowhere, "verify", file, "--root", root)
    first, *more = succeeded(said).splitlines()
    assert first.startswith("Verified. When this root was computed, the conversation 'barge-in' had")
    assert more[-1] == f"root   {root}"
    assert said.stderr == ""
    assert "--root HEX" in command(nowhere, "verify", file).stderr
    as_json = json.loads(succeeded(command(nowhere, "verify", file, "--root", root.upper(), "--json")))
    assert (as_json["verified"], as_json["kind"], as_json["context_id"]) == (True, "proof", "barge-in")

    other = command(nowhere, "verify", file, "--root", "0" * 64)
    assert (other.exit_code, other.stderr) == (1, f"The proof is of another root: {root}, not {'0' * 64}.\n")
    file.write_bytes(file.read_bytes().replace(b"User", b"user", 1))
    changed = command(nowhere, "verify", file, "--root", root)
    assert changed.exit_code == 1
    assert "The frames do not lead to the chain of the proof" in changed.stderr
    gone = tmp_path / "nowhere.jsonl"
    refused = command(nowhere, "verify", "--against", gone)
    assert (refused.exit_code, f"{gone} cannot be read" in refused.stderr) == (1, True)
    for wrong in (("--root", "abc", file), (), (file, "--against", file), (gone, "--root", root)):
        assert command(nowhere, "verify", *wrong).exit_code == 2


@pytest.mark.regression("journey 122")
def test_a_root_without_its_file_is_told_that_there_is_no_such_file(command):
    mistyped = command("postgresql://nobody@127.0.0.1:1/nothing", "verify", "my.jsonl", "--root", "0" * 64)
    assert mistyped.exit_code == 2
    assert "there is no file 'my.jsonl'" in " ".join(mistyped.stderr.replace("│", " ").split())


def test_a_file_of_heads_is_verified_without_a_server(filled, command, tmp_path):
    path = tmp_path / "heads.jsonl"
    root = write_heads(command, filled, path)
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"

    said = succeeded(command(nowhere, "verify", path, "--root", root))
    assert f"Verified. These {len(HISTORIES)} heads make this root." in said
    assert f"root   {root}" in said
    assert command(nowhere, "verify", path, "--root", "0" * 64).exit_code == 1


def test_the_command_compares_the_database_with_an_older_root(database, command, tmp_path):
    log = talk("a", "b", "c", "d")
    project(database, log.records[:8])
    path = tmp_path / "heads.jsonl"
    root = write_heads(command, database, path)
    project(database, log.records[8:10])
    erase(database, "c")

    good = succeeded(command(database, "verify", "--against", path, "--root", root))
    assert "c  version 2  erased: it was erased at version 2\n" in good
    assert "  1 conversations are unchanged, 2 continue their head," in good
    assert "  Nothing was changed, removed or replaced." in good
    rewrite(database, "a", 1, '{"type":"LLMRunFrame","said":"another"}')
    bad = command(database, "verify", "--against", path, "--root", root)
    assert bad.exit_code == 1
    assert "a  version 2  rewritten: its link is" in bad.stdout
    assert "  1 differ from their recorded head." in bad.stdout
    as_json = command(database, "verify", "--against", path, "--json")
    assert as_json.exit_code == 1
    listed = json.loads(as_json.stdout)
    assert {(one["what"], one["context_id"]) for one in listed["found"]} == {
        ("rewritten", "a"),
        ("erased", "c"),
    }
    assert command(database, "verify", "--against", path, "--root", "0" * 64).exit_code == 1


@pytest.mark.regression("fault 276")
def test_the_file_that_is_compared_is_the_one_that_was_verified_whatever_takes_its_name_meanwhile(
    database, command, tmp_path, monkeypatch
):
    """As `heads --full` does, at the times of another job."""
    project(database, talk("a").records)
    path, newer = tmp_path / "heads.jsonl", tmp_path / "newer.jsonl"
    root = write_heads(command, database, path)
    rewrite(database, "a", 1, '{"type":"LLMRunFrame","said":"another"}')
    write_heads(command, database, newer)

    def snapshot(*arguments):
        newer.replace(path)
        return heads.snapshot(*arguments)

    monkeypatch.setattr(verify_files, "snapshot", snapshot)
    compared = command(database, "verify", "--against", path, "--root", root)
    assert "rewritten: its link is" in compared.stdout


def test_a_conversation_that_went_on_is_proved_against_an_older_root(database, command, tmp_path):
    log = talk("a", "b", "c")
    project(database, log.records[:6])
    path, file = tmp_path / "heads.jsonl", tmp_path / "proof.jsonl"
    root = write_heads(command, database, path)
    project(database, log.records[6:])
    erase(database, "c")

    said = json.loads(succeeded(command(database, "prove", "b", "--heads", path, "-o", file, "--json")))
    assert (said["root"], said["leaves"], said["frames"]) == (root, 3, 2)
    assert proofs.verify(lines_of(file), bytes.fromhex(root)).header.version == 2
    for context, words in (
        ("c", "There are no frames of 'c' up to version 2"),
        ("d", f"The file {path} has no head of 'd'"),
    ):
        refused = command(database, "prove", context, "--heads", path, "-o", file)
        assert (refused.exit_code, words in refused.stderr) == (1, True)
    assert command(database, "prove", "b", "--heads", tmp_path / "nowhere").exit_code == 1
    rewrite(database, "b", 1, '{"type":"LLMRunFrame","said":"another"}')
    refused = command(database, "prove", "b", "--heads", path)
    assert refused.exit_code == 1
    assert "The stored frames of 'b' produce version 2" in refused.stderr
