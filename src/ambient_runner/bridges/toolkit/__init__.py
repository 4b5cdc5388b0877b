"""What every bridge is built with, documented for authors of their own: see docs/how-to/bridge.md."""
