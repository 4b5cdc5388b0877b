"""Agents of real SDKs with a scripted model that counts, for the bare loop, this server and the published adapters.

Nothing here imports this server: the published adapters run in separate environments, where it is not installed.
"""
