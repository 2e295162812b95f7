"""A new conversation begun from a moment of an old one: forks, reruns and replays."""
