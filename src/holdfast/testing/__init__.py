"""What tests of Holdfast, and of programs that use it, are made of. Nothing here needs a test framework.

`conformance` proves the contract for any store; `VirtualClock` is the time that such a test runs in.
"""

from holdfast.testing.virtual_clock import VirtualClock

__all__ = ["VirtualClock"]
