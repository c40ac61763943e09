SELECT {schema}.submit($1, $2, $3, $4)
