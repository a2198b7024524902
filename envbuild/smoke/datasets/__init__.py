"""The training data: the user's files or generated images, and the workloads that use them."""
