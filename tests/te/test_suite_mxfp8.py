"""The conformance suite under MXFP8, which keeps no scales."""

from tests.te.test_suite import DTYPES, EXECUTOR, PLUGIN, SAMPLES, TOLERANCE  # noqa: F401
from thunder.testing.suite import *  # noqa: F403

OPTIONS = {"te.recipe": "MXFP8BlockScaling"}
