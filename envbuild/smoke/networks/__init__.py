"""The networks to train, as lists of layers, and the float64 reference with which every framework is compared."""
