-- As an insert locks the table, before there is one.
LOCK TABLE {schema}.tasks IN ROW EXCLUSIVE MODE
