"""Systems outside that carry wake-ups: how their URLs are read and how they are reached, for those who send
(sinks/) and those who listen (wakeups/).
"""
