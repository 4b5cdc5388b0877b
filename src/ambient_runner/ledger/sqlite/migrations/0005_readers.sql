-- The processes that read a thread which they do not write. A run that nobody reads may be superseded, and its own process knows only its own
-- readers. Rows of workers that are not alive do not count; they go with their worker.
CREATE TABLE reader (
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    worker INTEGER NOT NULL,
    PRIMARY KEY (tenant, owner, id, worker)
) WITHOUT ROWID;
