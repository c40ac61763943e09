"""Tasks that wait for tasks: how they are put together, and how one gets what its parents gave."""
