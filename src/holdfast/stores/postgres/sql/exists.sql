SELECT EXISTS (SELECT FROM {schema}.tasks WHERE id = $1::uuid)
