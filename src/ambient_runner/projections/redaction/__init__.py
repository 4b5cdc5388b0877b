"""Redaction of secrets before anything is written: known values in every common form, what patterns know, also if split over deltas.

Rules. A value under 8 characters is not a secret, nor is one that is part of the replacement. Of a credential that is JSON or lines of a
dotenv file, the members are secret (`credential_parts.py`). Values are found as they are, escaped, and encoded (`encodings.py`);
well-known credentials are found by their shape (`config.credential_patterns`). Overlapping secrets become one replacement, so no rest of a
longer one remains. Text is replaced in every JSON string, member names and JSON pointers included, but not in enumerated values (types,
roles). Ids are strings like others: the replacement is always the same, so references stay equal. Only the ids of thread, run and parent
run stay: the client chose them, and they address the thread.

Streams. The end of an open message or call is held back by its shape (`held_deltas.py`). It is released before END of that message or
call, a MESSAGES_SNAPSHOT that holds messages, and the terminal event. It is *not* released before a tool call starts, nor at the marker of
a snapshot that is folded on read: later text could complete a secret whose beginning was already sent.
"""

from ambient_runner.projections.redaction.held_deltas import HELD_CHARS, held_start
from ambient_runner.projections.redaction.redactor import Redactor
from ambient_runner.projections.redaction.secrets import Secrets
from ambient_runner.projections.redaction.spans import REDACTED

__all__ = ["HELD_CHARS", "REDACTED", "Redactor", "Secrets", "held_start"]
