"""For authors of executors: a conformance suite, and executors to test against."""
