"""An executor that names several ways to run a call passes the conformance suite, each way included."""

from tests.core.testing.racing import racer, samples
from thunder.testing.suite import *  # noqa: F403

EXECUTOR = racer("several", "plain", "twice")
SAMPLES = {"torch.nn.functional.linear": samples}
