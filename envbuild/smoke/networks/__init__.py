"""What is trained: networks as lists of layers, and the float64 reference that judges every framework."""
