SELECT {schema}.identity()
