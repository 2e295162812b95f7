"""The topics by the settings, and the reported differences of existing topics."""

from dataclasses import replace
from uuid import uuid4

import pytest

from frameledger.record import MAX_VALUE_BYTES
from frameledger_services.event_log.topics import (
    DEFAULT_PARTITIONS,
    TopicDescription,
    TopicNames,
    missing,
    problems,
    topic_specs,
    unreadable,
)
from frameledger_services.settings import Settings


def as_wanted(topics):
    """A broker that has all that is asked for."""
    return {
        topic.name: TopicDescription(
            topic.name, topic.partitions, topic.replication or 1, uuid4(), dict(topic.config)
        )
        for topic in topics
    }


def with_config(found, name, value):
    return replace(found, config={**found.config, name: value})


def test_every_name_begins_with_the_prefix():
    names = TopicNames("staging.")
    assert [
        names.frames,
        names.inference,
        names.function_calls,
        names.cancellations,
        names.roots,
        names.dead_letters,
    ] == [
        "staging.frames",
        "staging.inference",
        "staging.function-calls",
        "staging.cancellations",
        "staging.roots",
        "staging.frames.dlq",
    ]


def test_frames_are_kept_for_ever_and_never_compacted_unless_the_settings_say_so():
    frames, *_ = topic_specs(Settings())
    assert frames.name == "llm.frames"
    assert frames.partitions == DEFAULT_PARTITIONS
    assert frames.replication is None
    assert frames.config["retention.ms"] == frames.config["retention.bytes"] == "-1"
    assert frames.config["cleanup.policy"] == "delete"
    assert frames.config["message.timestamp.type"] == "LogAppendTime"
    assert "min.insync.replicas" not in frames.config


def test_settings_reach_the_topics():
    settings = Settings(
        topic_partitions=3, topic_replication=3, topic_min_insync_replicas=2, frames_retention_days=2
    )
    frames, *others = topic_specs(settings)
    assert frames.config["retention.ms"] == str(2 * 86_400_000)
    assert [topic.partitions for topic in (frames, *others)] == [3, 3, 3, 3, 1, 3]
    assert {topic.replication for topic in (frames, *others)} == {3}
    assert {topic.config["min.insync.replicas"] for topic in (frames, *others)} == {"2"}
    assert [topic.config["retention.ms"] for topic in others] == [
        "604800000",
        "604800000",
        "86400000",
        "-1",
        "172800000",
    ]


def test_roots_are_kept_for_ever_and_in_one_order():
    roots = next(
        topic for topic in topic_specs(Settings(frames_retention_days=1)) if topic.name == "llm.roots"
    )
    assert (roots.partitions, roots.config["retention.ms"], roots.config["cleanup.policy"]) == (
        1,
        "-1",
        "delete",
    )


def test_a_dead_letter_may_be_larger_than_what_was_refused():
    *_, dead_letters = topic_specs(Settings())
    sizes = {int(topic.config["max.message.bytes"]) for topic in topic_specs(Settings())}
    assert min(sizes) > MAX_VALUE_BYTES
    assert int(dead_letters.config["max.message.bytes"]) == max(sizes) > min(sizes)


def test_topics_as_they_have_to_be_are_no_problem():
    topics = topic_specs(Settings(topic_replication=2, topic_min_insync_replicas=2))
    assert problems(topics, as_wanted(topics)) == []


@pytest.mark.regression("fault 44", "journey 108")
@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_topic_that_is_compacted_is_not_read_since_no_offset_tells_what_is_gone(policy):
    frames = as_wanted(topic_specs(Settings()))["llm.frames"]
    assert unreadable(frames) is None
    problem = unreadable(with_config(frames, "cleanup.policy", policy))
    assert problem is not None
    assert f"cleanup.policy={policy} and needs delete" in problem
    command = "kafka-configs.sh --bootstrap-server BROKER --alter --topic llm.frames --add-config"
    assert problem.endswith(f"{command} cleanup.policy=delete")
    assert unreadable(replace(frames, config={})) is None


def test_a_topic_that_is_not_there_is_a_problem_with_its_remedy():
    topics = topic_specs(Settings())
    assert problems(topics[:1], {}) == [
        "There is no topic llm.frames: create it with `frameledger topics --create`."
    ]


@pytest.mark.regression("journey 115")
def test_only_our_topics_are_made_with_our_command():
    for topic in topic_specs(Settings(topic_prefix="staging.")):
        assert missing(topic.name).endswith("create it with `frameledger topics --create`.")
    # As by `replay --to`, with the id of a conversation in place of a topic.
    assert missing("call-18") == (
        "There is no topic call-18. `frameledger topics` lists those of this installation."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000"),
        ("message.timestamp.type", "CreateTime"),
        ("max.message.bytes", "1048588"),
    ],
)
def test_a_setting_that_would_lose_frames_is_a_problem_with_its_remedy(name, value):
    (frames, *_) = topic_specs(Settings())
    found = as_wanted([frames])
    found[frames.name] = with_config(found[frames.name], name, value)
    (sentence,) = problems([frames], found)
    assert sentence.startswith(f"llm.frames has {name}={value} and needs {frames.config[name]}: ")
    assert f"--add-config {name}={frames.config[name]}" in sentence


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (Settings(), "max.message.bytes", "100000000"),
        (Settings(frames_retention_days=1), "retention.ms", "-1"),
        (Settings(frames_retention_days=1), "retention.ms", str(2 * 86_400_000)),
        (Settings(topic_min_insync_replicas=1, topic_replication=3), "min.insync.replicas", "2"),
    ],
)
def test_more_than_is_needed_is_no_problem(settings, name, value):
    (frames, *_) = topic_specs(settings)
    found = as_wanted([frames])
    found[frames.name] = with_config(found[frames.name], name, value)
    assert problems([frames], found) == []


def test_another_number_of_partitions_than_a_new_topic_would_get_is_no_problem():
    (frames, *_) = topic_specs(Settings())
    found = {frames.name: replace(as_wanted([frames])[frames.name], partitions=7)}
    assert problems([frames], found) == []


def test_too_few_copies_are_a_problem():
    (frames, *_) = topic_specs(Settings(topic_replication=3))
    found = {frames.name: replace(as_wanted([frames])[frames.name], replication=1)}
    (sentence,) = problems([frames], found)
    assert sentence.startswith(
        "llm.frames has 1 replicas of each partition, and FRAMELEDGER_TOPIC_REPLICATION"
    )


def test_more_copies_in_sync_than_there_are_copies_are_a_problem():
    (frames, *_) = topic_specs(Settings())
    found = {frames.name: with_config(as_wanted([frames])[frames.name], "min.insync.replicas", "2")}
    (sentence,) = problems([frames], found)
    assert "nothing can be published" in sentence
