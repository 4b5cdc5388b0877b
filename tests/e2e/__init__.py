"""The server as strangers meet it: the real command, real sockets, official clients, kills."""
