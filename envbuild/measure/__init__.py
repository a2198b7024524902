"""Read from wheels and shared libraries what they need, and for which GPUs they have kernels."""
