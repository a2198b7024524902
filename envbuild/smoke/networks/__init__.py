"""The networks to train, as lists of layers, and the reference in float64 with which every framework is compared."""
