"""What every test run starts from, however it was started."""

import signal


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
