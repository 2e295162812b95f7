"""Recovery: what an operator does when the log and the tables differ, or a conversation is parked.

`recover` compares a topic with its tables and continues in a new generation; `republish` publishes what the log lost;
`unpark` folds the frames of a parked conversation. Each runs beside projectors, which it fences.
"""
