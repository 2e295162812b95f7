"""New conversations that start from a version of an old one: forks, reruns and replays."""
