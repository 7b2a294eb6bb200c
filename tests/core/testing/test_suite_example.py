"""The example package of the plugin tests passes the conformance suite, from where it lies."""

import sys

from tests.core.plugins.install import FIXTURES
from thunder.testing.suite import *  # noqa: F403

sys.path.append(str(FIXTURES / "thunder-example/src"))
from thunder_example.plugin import EXAMPLE

EXECUTOR = EXAMPLE
PLUGIN = "thunder_example.plugin"
