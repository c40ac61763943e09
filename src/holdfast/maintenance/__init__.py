"""What every worker does besides working: rescue what is lost, carry workflows on, forget what is old.

Any number may do it at once.
"""
