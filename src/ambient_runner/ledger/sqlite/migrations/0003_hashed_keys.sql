-- The scope of an Idempotency-Key is a hash: a client may send a secret as its key. `sha256_hex` is defined by the migration.
UPDATE idempotency SET scope = sha256_hex(scope);
UPDATE lease SET scope = sha256_hex(scope) WHERE scope IS NOT NULL;
