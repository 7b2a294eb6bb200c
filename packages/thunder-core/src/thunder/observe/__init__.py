"""Looking inside: what was compiled, who runs each operation and why, and what did not go through the compiler."""
