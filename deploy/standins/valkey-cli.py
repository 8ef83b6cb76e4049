#!/usr/bin/env python3
"""As much of valkey-cli as a health check needs: `valkey-cli ping`, password in REDISCLI_AUTH."""

import os
import socket
import sys

SECONDS = 3.0
BYTES_MAX = 512


def main() -> int:
    """Send PING and print what comes back."""
    if [word.lower() for word in sys.argv[1:]] != ["ping"]:
        sys.stderr.write("this stand-in knows PING alone\n")
        return 1
    password = os.environ.get("REDISCLI_AUTH", "").encode()
    with socket.create_connection(("127.0.0.1", 6379), timeout=SECONDS) as connection:
        lines = connection.makefile("rb")
        if password:
            head = b"*2\r\n$4\r\nAUTH\r\n$%d\r\n" % len(password)
            connection.sendall(head + password + b"\r\n")
            if not lines.readline(BYTES_MAX).startswith(b"+OK"):
                sys.stderr.write("the password was refused\n")
                return 1
        connection.sendall(b"*1\r\n$4\r\nPING\r\n")
        sys.stdout.write(lines.readline(BYTES_MAX).decode("utf-8", "replace").lstrip("+"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
