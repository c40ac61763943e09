DROP TRIGGER IF EXISTS holdfast_route
