SELECT {schema}.complete($1, $2, $3, $4)
