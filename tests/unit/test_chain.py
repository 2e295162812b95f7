"""The hash chain: its links are stored for ever, so their values are written out here."""

from hashlib import sha256

from frameledger.chain import first_link, next_link

VALUE = b'{"type":"LLMRunFrame"}'


def test_the_links_of_a_chain_are_those_that_are_stored_for_ever():
    first = first_link("harbour")
    one = next_link(first, 1, None, VALUE)
    two = next_link(one, 2, "caf\u00e9", VALUE)
    three = next_link(two, 3, "", VALUE)

    assert [link.hex() for link in (first, one, two, three)] == [
        "aa74f6fd03bf68be7e0f4bd06cae61a72ab8025b50d00888f3e1068f22067463",
        "a2a71348311445370d89cfac2c3b53e79ab713c3e30ad9ef6d86b9010c219283",
        "d1197ffadbd68fad73a031c7ea06bab202733920b1d036005e4d64aa094a3ea3",
        "616abd19b9c0ec5a89b55b687dab60d1241f79827a47e18785b788cc79a9e3ac",
    ]


def test_no_source_and_an_empty_one_are_two_things():
    before = sha256(b"").digest()

    assert next_link(before, 1, None, VALUE) != next_link(before, 1, "", VALUE)


def test_a_source_cannot_take_bytes_of_the_value():
    before = sha256(b"").digest()

    assert next_link(before, 1, "ab", b"c") != next_link(before, 1, "a", b"bc")
