"""Real servers the tests talk to, each a child process on a free loopback port with fresh state.

A server starts, is waited for with a deadline, and is killed with its whole process group when the test run
ends, however it ends. `python -m tests.servers` installs them and runs them by hand.
"""
