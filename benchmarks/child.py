"""One measurement in a process of its own: ``python -m benchmarks.child module:function '{"argument": 1}'``."""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main() -> None:
    target, arguments = sys.argv[1:]
    module, function = target.split(":")
    print(json.dumps(getattr(import_module(module), function)(**json.loads(arguments))))


if __name__ == "__main__":
    main()
