-- Has the caller's database our functions, and what is the number of its transaction? Asks nothing that could fail.
SELECT pg_catalog.to_regprocedure($1) IS NOT NULL, pg_catalog.pg_current_xact_id()::text
