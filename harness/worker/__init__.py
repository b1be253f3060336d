"""What runs in each rank of a launch. Standard library, nvtx and torch only: it runs wherever the engine does."""
