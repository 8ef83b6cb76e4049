"""The parts of `odin.client`."""
