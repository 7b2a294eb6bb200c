"""A small executor package that shows the whole contract."""
