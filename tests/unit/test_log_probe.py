"""A log probe queries each leader for the ends of its partitions; one that does not answer delays no other."""

import asyncio

import pytest
from aiokafka.errors import KafkaError, LeaderNotAvailableError, TopicAuthorizationFailedError
from tests.bounds import ON_SERVERS, scaled

from frameledger_services.event_log.failover import NO_LEADER
from frameledger_services.event_log.log_probe import LogProbe

TOPIC = "llm.frames"
PATIENCE = 0.2


class Client:
    """aiokafka's consumer, its client and its metadata. Like those it waits for a leader that is not there, whoever
    else is asked in the same call."""

    def __init__(self, leaders, *, then=None, silent=(), refused=()):
        self._client = self.cluster = self
        self._leaders, self._then = leaders, then or leaders
        self._silent, self._refused = silent, refused
        self.asked = []

    def leader_for_partition(self, place):
        assert place.topic == TOPIC
        return self._leaders.get(place.partition)

    async def force_metadata_update(self):
        self._leaders = self._then

    async def end_offsets(self, places):
        numbers = [place.partition for place in places]
        self.asked.append(numbers)
        leaders = {self._leaders[number] for number in numbers}
        if leaders & set(self._refused):
            raise TopicAuthorizationFailedError
        if leaders & {NO_LEADER, *self._silent}:
            await asyncio.Event().wait()
        return {place: 10 + place.partition for place in places}


def ends(client, patience=ON_SERVERS):
    async def ask():
        until = asyncio.get_running_loop().time() + patience
        return await LogProbe(client, TOPIC).ends(range(4), until)

    return asyncio.run(ask())


def test_partitions_of_one_leader_are_asked_for_in_one_request():
    client = Client({0: 1, 1: 2, 2: 1, 3: 2})
    assert ends(client) == {0: 10, 1: 11, 2: 12, 3: 13}
    assert client.asked == [[0, 2], [1, 3]]


@pytest.mark.regression("fault 108")
def test_a_partition_without_a_leader_is_left_out_of_the_ends():
    client = Client({0: 1, 1: NO_LEADER, 2: 1, 3: 1})
    assert ends(client) == {0: 10, 2: 12, 3: 13}


@pytest.mark.regression("fault 108")
def test_a_partition_whose_leader_is_known_to_newer_metadata_is_among_the_ends():
    client = Client({0: 1, 1: NO_LEADER, 2: 1, 3: 1}, then={0: 1, 1: 2, 2: 1, 3: 1})
    assert ends(client) == {0: 10, 1: 11, 2: 12, 3: 13}


@pytest.mark.regression("fault 108")
@pytest.mark.parametrize("trouble", ["silent", "refused"])
def test_partitions_of_a_leader_that_does_not_answer_are_left_out_of_the_ends(trouble):
    client = Client({0: 1, 1: 2, 2: 1, 3: 2}, **{trouble: [2]})
    assert ends(client, scaled(PATIENCE)) == {0: 10, 2: 12}


@pytest.mark.regression("fault 108")
@pytest.mark.parametrize(
    ("client", "error"),
    [
        (Client(dict.fromkeys(range(4), NO_LEADER)), LeaderNotAvailableError),
        (Client({}), LeaderNotAvailableError),
        (Client(dict.fromkeys(range(4), 1), silent=[1]), TimeoutError),
        (Client(dict.fromkeys(range(4), 1), refused=[1]), TopicAuthorizationFailedError),
    ],
    ids=["no leader", "no topic", "silent", "refused"],
)
def test_without_any_answer_there_is_an_error(client, error):
    with pytest.raises((KafkaError, TimeoutError)) as raised:
        ends(client, scaled(PATIENCE))
    assert raised.type is error
