"""Bubblewrap on this machine: its path if it can build a sandbox here, else the reason and what to do about it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

__all__ = ["COMMON_OPTIONS", "BubblewrapStatus", "check_bubblewrap", "find_bubblewrap"]

COMMON_OPTIONS = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)
"""Options of every sandbox. Bubblewrap started by root keeps all capabilities, and with them the way out, unless they are dropped."""

_PROBE = (*COMMON_OPTIONS, "--unshare-net", "--tmpfs", "/tmp", "--remount-ro", "/tmp", "--", "true")  # noqa: S108
_PROBE_TIMEOUT = 30.0  # seconds
_MAX_REASON = 300  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class BubblewrapStatus:
    """The result of trying bubblewrap once."""

    path: str | None
    """The program; None if it cannot build a sandbox here."""
    reason: str
    """The reason if it cannot, with what to do about it; empty if it works."""


@cache
def check_bubblewrap() -> BubblewrapStatus:
    """Try bubblewrap, once per process. The first call blocks until a small sandbox has started and ended."""
    if sys.platform != "linux":
        return BubblewrapStatus(path=None, reason="The sandbox is bubblewrap, which exists on Linux only.")
    path = shutil.which("bwrap")
    if path is None:
        return BubblewrapStatus(
            path=None, reason="bubblewrap is not installed. `apt-get install bubblewrap` installs it."
        )
    reason = probe_bubblewrap(path)
    return BubblewrapStatus(path=None if reason else path, reason=reason)


def find_bubblewrap() -> str | None:
    """Return the path of bubblewrap if it works here. `check_bubblewrap` has the reason if not."""
    return check_bubblewrap().path


def probe_bubblewrap(path: str) -> str:
    """Build a small sandbox with the program. Return why that failed; an empty text if it did not."""
    try:
        result = subprocess.run([path, *_PROBE], capture_output=True, timeout=_PROBE_TIMEOUT, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not start a program within {_PROBE_TIMEOUT:.0f} seconds."
    except OSError as error:
        return f"bubblewrap cannot be started: {error.strerror}."
    if result.returncode == 0:
        return ""
    return describe_failure(result.stderr.decode(errors="replace"))


def describe_failure(output: str) -> str:
    """Return what bubblewrap's error output means, with what to do about it."""
    message = " ".join(output.split())[:_MAX_REASON] or "no message"
    advice = next((advice for text, advice in _ADVICE if text in message), "")
    return f"bubblewrap does not work here ({message}). {advice}".rstrip()


_NAMESPACES = (
    "User namespaces are forbidden: allow them with `sysctl kernel.unprivileged_userns_clone=1` or, on Ubuntu, with an AppArmor profile "
    "for bwrap or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
)
_ADVICE = (
    ("mount proc", "In a container it needs an unmasked /proc: with Docker `--security-opt systempaths=unconfined`."),
    ("loopback", _NAMESPACES),
    ("uid map", _NAMESPACES),
    ("namespace", _NAMESPACES),
    ("Unknown option", "This version of bubblewrap is too old: 0.4 or newer is needed."),
    ("not permitted", _NAMESPACES),
    ("denied", _NAMESPACES),
)
"""Parts of bubblewrap's messages, each with what to do about it. The first that fits counts."""
