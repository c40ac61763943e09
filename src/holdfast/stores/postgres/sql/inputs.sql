SELECT inputs FROM {schema}.tasks WHERE id = $1::uuid
