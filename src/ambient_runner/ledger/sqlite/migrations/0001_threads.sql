-- The first schema. A thread is (tenant, owner, id): a client's thread id alone names nothing.
--
-- Content of users is in `batch`, `checkpoint` and `run` only. When SQLite merges or splits the pages of a table it copies rows and leaves the
-- old bytes in the pages' unused space, where `secure_delete` does not reach. So in these three tables rows are only ever added at the end,
-- never grow, and are blanked in place instead of deleted (`thread_no` NULL); blank rows go later, far from any live one.

-- One row per open ledger. `expires` is on the machine's monotonic clock, comparable within one `boot` only.
-- It is renewed while the worker holds a lease or a ticket, so a row past its time is normal for an idle one.
CREATE TABLE worker (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    boot TEXT NOT NULL,
    space TEXT NOT NULL,
    lease REAL NOT NULL,
    expires REAL NOT NULL
);

-- The right to write. The row is the lease: it goes when the lease is released, and a takeover replaces it.
-- AUTOINCREMENT never gives a token twice, so an old holder finds its token missing, also after the thread was erased.
CREATE TABLE lease (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    run TEXT NOT NULL,
    worker INTEGER NOT NULL,
    scope TEXT,
    digest TEXT,
    stop TEXT,
    UNIQUE (tenant, owner, id)
);

-- The queue for a lease, in order.
CREATE TABLE ticket (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    worker INTEGER NOT NULL
);
CREATE INDEX ticket_line ON ticket (tenant, owner, id, no);

-- `floor` is the newest seq that retention dropped. The newest seq of all is not stored here: it would dirty this page with every append.
-- `updated` moves when a run begins or ends and with facts outside of runs; it is unique per owner, so that it can be a cursor.
CREATE TABLE thread (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    agent TEXT NOT NULL,
    epoch TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    floor INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, owner, id)
);
CREATE INDEX thread_newest ON thread (tenant, owner, updated);

-- `last` is the seq of the terminal entry. While there is none it is 2^40: a big number, so that ending a run does not grow its row.
CREATE TABLE run (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no INTEGER REFERENCES thread (no),
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL DEFAULT 1099511627776,
    UNIQUE (thread_no, key)
);
CREATE INDEX run_order ON run (thread_no, first);
CREATE INDEX run_open ON run (thread_no) WHERE last = 1099511627776;

-- The log: a row holds consecutive entries, one line each. `no` only grows, over all threads: other processes poll for what came after it.
-- The unique index is the last guard of the numbering: no seq begins two batches.
CREATE TABLE batch (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no INTEGER REFERENCES thread (no),
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    run TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    ts INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX batch_order ON batch (thread_no, first);

-- The folded thread up to `seq`; only the newest of a thread is stored.
CREATE TABLE checkpoint (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no INTEGER UNIQUE REFERENCES thread (no),
    seq INTEGER NOT NULL,
    body BLOB NOT NULL
);

-- Idempotency-Keys, for 24 hours. After an erasure `run` is empty and the row says only that the key was used.
CREATE TABLE idempotency (
    scope TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    used INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    run TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (used);
CREATE INDEX idempotency_thread ON idempotency (tenant, owner, id);

-- Tombstones: other processes learn from them which readers to end. Nothing of the content is here.
CREATE TABLE erased (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    at INTEGER NOT NULL
);
