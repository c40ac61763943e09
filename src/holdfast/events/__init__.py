"""What happens in a worker, told to whoever listens: the log now; metrics and traces are further subscribers.

Facts about tasks are published only after the store has recorded them. The durable log of each task's events is the
store's.
"""
