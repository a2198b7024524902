"""The values that stages pass to each other: frozen, without I/O, and without defaults that hide a decision.

All versions are strings. Tuples keep the order that the producer chose and are written in that order. Each module here has one
reason to change: the additions of a user's recipe, the decision, its explanation, the pins, and progress messages.
"""
