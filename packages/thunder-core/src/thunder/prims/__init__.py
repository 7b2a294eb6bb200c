"""What the core knows about operators: facts that PyTorch states (tags, schemas) and the few prims that ATen lacks."""
