-- Labels of threads, and a list that clients can follow: a page asks every two seconds what has changed.

-- Titles are words that people wrote, so they follow the rule of the first schema: rows are only added at the end, never grow, and are blanked
-- in place (`thread_no` NULL). A new title is a new row. `searched` is what a search looks in: title, line break, id, all of it case-folded.
CREATE TABLE label (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no INTEGER REFERENCES thread (no),
    title TEXT NOT NULL,
    searched TEXT NOT NULL
);
INSERT INTO label (no, thread_no, title, searched) SELECT no, no, '', char(10) || fold_case(id) FROM thread ORDER BY no;

-- `label` is the row of its title. Every thread has one, with an empty title at first.
ALTER TABLE thread ADD COLUMN label INTEGER NOT NULL DEFAULT 0;
UPDATE thread SET label = no;

-- `status`: 0 running, 1 waiting, 2 finished, 3 failed, 4 stopped. `changed` is the position of the last change in the order of all changes;
-- it replaces `updated` as the cursor, which need not be unique any more.
ALTER TABLE thread ADD COLUMN status INTEGER NOT NULL DEFAULT 2;
ALTER TABLE thread ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
UPDATE thread SET changed = updated * 1000;
UPDATE thread SET status = 0 WHERE no IN (SELECT thread_no FROM run WHERE last = 1099511627776 AND thread_no IS NOT NULL);
DROP INDEX thread_newest;
CREATE INDEX thread_changed ON thread (tenant, owner, changed);

-- An erasure has a position too, so that clients learn of it.
ALTER TABLE erased ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX erased_changed ON erased (tenant, owner, changed);

-- One row. `newest` is the position of the last change of any thread, in microseconds since 1970 or one more than the last: it must not move back
-- when its thread or tombstone goes. `dropped` is the newest position of the tombstones that were deleted. `store` is a part of every cursor.
CREATE TABLE change_counter (
    store TEXT NOT NULL,
    newest INTEGER NOT NULL,
    dropped INTEGER NOT NULL
);
INSERT INTO change_counter (store, newest, dropped)
SELECT lower(hex(randomblob(6))), coalesce(max(changed), 0), 0 FROM thread;
