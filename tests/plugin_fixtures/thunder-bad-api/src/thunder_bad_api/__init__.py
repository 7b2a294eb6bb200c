"""A plugin for another version of the contract."""
