"""The conformance suite. Its tolerance is for sums of products in another order: those of convolutions."""

from thunder.testing.suite import *  # noqa: F403
from thunder_inductor.plugin import INDUCTOR

EXECUTOR = INDUCTOR
PLUGIN = "thunder_inductor.plugin"
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}
