-- The newest checkpoint of a thread, where folds start. A run writes it in its last transaction, every few thousand entries. `checkpoint` still
-- has the one that stands for the entries which retention dropped: readers of the entries after it begin there.
--
-- It is stored in parts, so that one more costs what is new since the last one and not the whole thread. `is_head` is 1 for the one row that
-- every checkpoint replaces, and `seq` is the checkpoint's; the other rows are shared with earlier checkpoints, and `seq` is that of the one
-- that a row was written with. The rule of the first schema holds: rows are added at the end, never grow, and are blanked in place.
CREATE TABLE checkpoint_part (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no INTEGER REFERENCES thread (no),
    seq INTEGER NOT NULL,
    is_head INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX checkpoint_part_order ON checkpoint_part (thread_no, is_head, seq);
