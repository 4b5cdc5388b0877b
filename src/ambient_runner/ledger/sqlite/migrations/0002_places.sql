-- A row of `batch` is no longer indexed when it is written: with many runs at once, every row dirtied an index page of its own, and
-- that was half of the cost of a commit. Instead, a row of `place` lists the rows of `batch` that hold a span of entries, some dozens at a time.
--
-- A row that no `place` lists yet is unindexed. A thread has unindexed rows only while it has a lease: the process that deletes the lease,
-- its holder or the one that takes it over, indexes them first. All of them come after the row `lease.since`, and after the last indexed row.

-- `rows` is a JSON list of `batch.no`, in the order of their entries; `upto` the last of them. A row listed here may have been blanked since.
CREATE TABLE place (
    thread_no INTEGER NOT NULL REFERENCES thread (no),
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    rows TEXT NOT NULL,
    PRIMARY KEY (thread_no, first)
) WITHOUT ROWID;

INSERT INTO place (thread_no, first, last, upto, rows)
SELECT thread_no, first, last, no, json_array(no) FROM batch WHERE thread_no IS NOT NULL;

DROP INDEX batch_order;

-- The newest row of `batch` when the lease was taken.
ALTER TABLE lease ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
