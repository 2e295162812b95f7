"""A line of the settings file is split into words like by a shell."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frameledger_services import shell_words

PLAIN = st.sampled_from("a#=:/@ü%,.-+{")
"""Characters that a shell expands nowhere in a value, so both have to read the same."""

PIECES = st.one_of(
    PLAIN,
    st.text('a# \t"\\$`;&', max_size=4).map("'{}'".format),
    st.lists(st.sampled_from([*"a# \t';&", r"\$", r"\`", r"\"", "\\\\", r"\a", r"\#"]), max_size=4)
    .map("".join)
    .map('"{}"'.format),
    st.sampled_from("a# \t'\"\\$`;&").map("\\{}".format),
)
VALUES = st.lists(PIECES, max_size=6).map("".join)
COMMENTS = st.sampled_from(["", " ", " #", "\t# it's \"open", "  ## $no `one`"])


@pytest.mark.regression("journey 69")
@settings(max_examples=15)  # each starts a shell
@given(st.lists(st.tuples(VALUES, COMMENTS), min_size=1, max_size=30), st.sampled_from(["", " ", "\t"]))
def test_a_shell_reads_the_same_value(written, blank):
    lines = [f"{blank}V{number}={value}{comment}" for number, (value, comment) in enumerate(written)]
    shown = " ".join(f'"$V{number}"' for number in range(len(lines)))
    script = "\n".join([*lines, f"printf '%s\\0' {shown}"])
    shell = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    values = shell.stdout.decode().removesuffix("\0").split("\0")
    assert [shell_words.split(line) for line in lines] == [
        [f"V{number}={value}"] for number, value in enumerate(values)
    ]


@pytest.mark.regression("journey 69")
@pytest.mark.parametrize("line", ["", "  ", "# a", "\t# it's"])
def test_a_comment_or_an_empty_line_has_no_words(line):
    assert shell_words.split(line) == []


@pytest.mark.regression("journey 69")
@pytest.mark.parametrize("line", ["a='b", 'a="b', 'a="b\\"', "a=b\\", "a='b' 'c", "a='b # c"])
def test_what_is_left_open_has_none_either(line):
    assert shell_words.split(line) is None
