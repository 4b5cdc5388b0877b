"""Agents of real SDKs with a scripted model that counts, for the bare loop, for this server and for the published adapters alike.

Nothing here imports this server: the published adapters run in environments of their own, where it is not installed.
"""
