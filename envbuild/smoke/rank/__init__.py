"""The phases that run in each rank, from the first collective to the last timed step. Only ranks import a framework."""
