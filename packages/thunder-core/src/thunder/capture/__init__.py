"""Recording programs on fake tensors."""
