"""The Claude bridge on the real SDK and its bundled CLI. The model is scripted: aimock, a server on loopback that plays `script.py`."""
