"""What holds for every test."""

from __future__ import annotations

import hypothesis

# a busy machine is slow, not wrong
hypothesis.settings.register_profile("clockhand", deadline=None)
hypothesis.settings.load_profile("clockhand")
