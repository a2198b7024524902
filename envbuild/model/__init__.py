"""The values that stages pass to each other. They are frozen, do no I/O, and have no defaults that hide a decision.

All versions are strings. Tuples keep the order in which they were made, and are written in that order. Each module of this
package has one subject, such as the additions of a user's recipe, the decision, its explanation, the pins, or progress
messages.
"""
