"""What runs in each rank: the phases from the first collective to the last lap. Only here a framework is imported."""
