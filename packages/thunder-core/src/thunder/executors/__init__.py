"""The built-in executors, registered through the same hooks as every other."""
