DELETE FROM holdfast_sinks WHERE name = :sink
