"""Front ends: how a user's program becomes something ``capture.record`` can run."""
