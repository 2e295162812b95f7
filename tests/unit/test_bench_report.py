"""A bench reports each figure as a ratio to its yardstick, and whether that meets its goal."""

import asyncio
import gc
import json
import os
from itertools import islice, pairwise
from random import Random

import pytest
from typer.testing import CliRunner

from frameledger.fold import Conversation, Folding, steps
from frameledger.frames import encode_frame
from frameledger_services.bench import core, report
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import running
from frameledger_services.bench.road.rounds import Rounds, interval_of_median, summed
from frameledger_services.bench.talk import talking
from frameledger_services.bench.timing import WARM_UP, compare
from frameledger_services.cli import application
from frameledger_services.cli.terminal import output
from frameledger_services.settings import Settings

MET = Figure("reading", 123_456.7, "frames/s", 150_000.0, ratio=0.82304, goal=0.7, bound="at least")
MISSED = Figure("late", 5.61234, "us/frame", 5.0, ratio=1.12, goal=1.1, bound="at most")


@pytest.fixture
def recorded(tmp_path):
    """A folder with one short history."""
    frames = islice(talking(Folding(Conversation.new("talk"))), 60)
    (tmp_path / "talk.jsonl").write_bytes(b"\n".join(map(encode_frame, frames)) + b"\n\n")
    return tmp_path


@pytest.mark.regression("fault 293")
def test_ctrl_c_in_a_terminal_does_not_reach_a_measured_process():
    async def group():
        async with running(Settings(), "http.server", "--bind", "127.0.0.1", "0") as process:
            return os.getpgid(process.pid) == process.pid

    assert asyncio.run(group())


@pytest.mark.parametrize(
    ("bound", "ratio", "ok"),
    [
        ("at least", 0.69, False),
        ("at least", 0.7, True),
        ("at least", 2.0, True),
        ("at most", 0.71, False),
        ("at most", 0.7, True),
        ("at most", 0.1, True),
    ],
)
def test_a_figure_is_ok_when_its_ratio_is_on_the_right_side_of_its_goal(bound, ratio, ok):
    assert Figure("reading", 1, "s", 1, ratio=ratio, goal=0.7, bound=bound).ok is ok


def test_json_is_a_list_of_objects_with_the_keys_that_every_bench_has():
    assert json.loads(report.as_json([MET, MISSED])) == [
        {
            "name": "reading",
            "value": 123_500,
            "unit": "frames/s",
            "yardstick": 150_000,
            "ratio": 0.823,
            "goal": 0.7,
            "ok": True,
        },
        {
            "name": "late",
            "value": 5.612,
            "unit": "us/frame",
            "yardstick": 5,
            "ratio": 1.12,
            "goal": 1.1,
            "ok": False,
        },
    ]


@pytest.mark.regression("journey 84")
def test_the_table_says_of_each_figure_whether_it_met_its_goal(capsys):
    output.console().print(report.as_table([MET, MISSED]))
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "reading 123,500 150,000 frames/s 0.82 ≥ 0.7 ok" in rows
    assert "late 5.61 5.00 us/frame 1.12 ≤ 1.1 missed" in rows


def test_two_works_are_done_in_turns_each_prepared_anew_and_none_is_always_first():
    done = []

    def prepare(name):
        return lambda: done.append(name)

    compare(lambda: prepare("ours"), lambda: prepare("yardstick"), rounds=5)
    rounds = [tuple(done[at : at + 2]) for at in range(0, len(done), 2)]
    assert len(rounds) == WARM_UP + 5
    assert set(rounds) == {("ours", "yardstick"), ("yardstick", "ours")}
    assert all(one != after for one, after in pairwise(rounds))


@pytest.mark.parametrize(
    ("count", "lowest", "highest"),
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (7, 1, 7), (8, 2, 7), (9, 2, 8), (15, 4, 12)],
)
def test_the_interval_of_a_median_is_that_of_its_order_statistics(count, lowest, highest):
    """As tables of the sign test have it, of 90 per cent."""
    ratios = Random(count).sample(range(1, count + 1), count)
    assert interval_of_median(ratios) == (lowest, highest)


def test_short_rounds_are_summed_to_long_ones():
    assert summed(Rounds([1, 2, 3, 4], [5, 6, 7, 8]), 2) == Rounds([3, 7], [11, 15])


def test_the_median_of_what_is_drawn_lies_in_the_interval_nine_times_of_ten():
    random = Random(7)
    drawn = [interval_of_median([random.lognormvariate(0, 0.1) for _ in range(9)]) for _ in range(2_000)]
    missed = sum(not lowest <= 1 <= highest for lowest, highest in drawn)
    # 3.9 per cent by the formula.
    assert 0.02 < missed / len(drawn) < 0.06


def test_the_ratio_is_how_much_longer_ours_takes():
    compared = compare(lambda: lambda: spin(40_000), lambda: lambda: spin(2_000), rounds=5)
    assert compared.ratio > 5
    assert compared.ours > compared.yardstick > 0


def test_garbage_is_collected_again_after_a_comparison_even_of_work_that_fails():
    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        compare(lambda: fail, lambda: fail, rounds=1)
    assert gc.isenabled()


def test_every_frame_of_the_endless_talk_is_applied_and_thirty_make_five_messages():
    folding = Folding(Conversation.new("talk"))
    frames = list(islice(talking(folding), 300))
    assert len(folding.messages) == 50
    assert {step.outcome for _, step in steps(frames, Conversation.new("talk"))} == {"applied"}


def test_a_window_begins_where_it_should_and_leaves_its_conversation_as_it_was():
    window = core.window_after(10)
    assert len(window.conversation.messages) == 10
    before = window.conversation
    for _ in range(2):
        window.prepare()()
    assert window.conversation == before
    assert {step.outcome for _, step in steps(window.frames, before)} == {"applied"}
    assert len(window.frames) == core.WINDOW


def test_throughput_is_measured_over_a_folder_of_histories(recorded):
    stream = core.histories(recorded)
    assert [(history.context_id, len(history.values)) for history in stream] == [("talk", 60)]
    for figure in (core.decoding(stream, rounds=1), core.folding(stream, rounds=1)):
        assert figure.unit == "frames/s"
        # Which of the two is quicker for so few frames is chance.
        assert figure.value > 0
        assert figure.ratio == pytest.approx(figure.value / figure.yardstick)


def test_values_that_the_bare_union_cannot_read_are_left_out_of_the_comparison_with_it(recorded):
    lines = [b'{"type":"NewFrame"}', b'{"type":"LLMMessagesFrame","messages":[]}', b'{"type":"EndFrame"}']
    (recorded / "old.jsonl").write_bytes(b"\n".join(lines))
    [old] = [history for history in core.histories(recorded) if history.context_id == "old"]
    assert core.decoding([old], rounds=1).value > 0


@pytest.mark.parametrize(("figures", "code"), [([MET], 0), ([MET, MISSED], 1)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_missed_goal_is_shown_and_ends_with_1(recorded, monkeypatch, figures, code, options):
    monkeypatch.setattr(core, "measure", lambda stream, rounds: figures)
    result = bench(recorded, *options)
    assert result.exit_code == code
    assert all(figure.name in result.output for figure in figures)


def test_a_folder_without_a_line_of_history_ends_with_1_and_says_what_to_do(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    for folder in (tmp_path, tmp_path / "nowhere"):
        result = bench(folder)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "--histories DIR" in result.stderr


def test_a_history_with_a_line_that_is_no_frame_ends_with_1_and_says_how_to_find_it(recorded):
    (recorded / "bad.jsonl").write_bytes(b'{"type":5}\n')
    result = bench(recorded, "--rounds", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "frameledger fold" in result.stderr


def test_no_rounds_at_all_is_a_wrong_call(recorded):
    assert bench(recorded, "--rounds", "0").exit_code == 2


def bench(folder, *options):
    return CliRunner().invoke(application(), ["bench", "core", "--histories", str(folder), *options])


def spin(times):
    for _ in range(times):
        pass
