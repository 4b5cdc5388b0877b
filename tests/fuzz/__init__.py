"""Random searches for faults: property tests (`__main__.py`), secrets (`secrets.py`), guesses (`oracle.py`), clean texts (`corpus.py`)."""
