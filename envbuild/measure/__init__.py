"""Read from wheels and shared libraries what they need and which GPUs their kernels are for."""
