"""The conformance suite."""

from thunder.testing.suite import *  # noqa: F403
from thunder_inductor.plugin import INDUCTOR

EXECUTOR = INDUCTOR
PLUGIN = "thunder_inductor.plugin"
