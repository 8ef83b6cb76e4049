"""Tries the containers out where no Docker engine runs, with Debian's podman.

    make compose-smoke

Builds the image and stand-ins for the official ones (no image registry is needed), starts all of
compose.yaml under a name, storage and ports of its own, places orders, kills an engine, places
another order, and removes every container, volume and network that it made, whatever happened.
"""
