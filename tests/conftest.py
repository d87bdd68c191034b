"""What holds for every test."""

from __future__ import annotations

import signal

import hypothesis
import pytest

# a busy machine is slow, not wrong
hypothesis.settings.register_profile("clockhand", deadline=None)
hypothesis.settings.load_profile("clockhand")

# whoever starts a session in the background has it ignore interrupts, and so would every process under test
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _AtOnce:
    """Names a failed test when it fails: the report at the end is never seen of a session that somebody cuts off."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            terminal.write_line(f"\nFAILED {report.nodeid} {report.when}: {crash.message if crash else ''}"[:500])


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config))
