"""The fake executor passes the conformance suite."""

from thunder.testing.fakes import FAKE
from thunder.testing.suite import *  # noqa: F403

EXECUTOR = FAKE
PLUGIN = "thunder.testing.fakes"
