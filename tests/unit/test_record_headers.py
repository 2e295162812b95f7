"""The headers of a dead letter in its row."""

import pytest

from frameledger_services.store.record_headers import headers_as_json, headers_from_json


def test_headers_are_read_as_they_were_written():
    headers = (("a", b"b"), ("a", None), ("c", b"\xff"), ("d", b"\x00"))
    assert headers_from_json(headers_as_json(headers)) == headers
    assert headers_from_json("[]") == ()


@pytest.mark.regression("fault 265")
@pytest.mark.parametrize("written", ['["ab", "cd"]', '{"ab": "cd"}', '"ab"', '[["a"]]', "null"])
def test_what_is_no_list_of_pairs_is_no_headers(written):
    with pytest.raises(ValueError, match="not the headers of a record"):
        headers_from_json(written)
