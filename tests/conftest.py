"""What all tests share: how Hypothesis behaves on a machine that is busy with other things."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Deadlines and generation speed are properties of the machine, not of the code under test.
settings.register_profile("stepduel", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("stepduel")
