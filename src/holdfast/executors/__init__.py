"""EXECUTE: where handlers run. On the event loop, in threads, in child processes."""
