"""The local cluster: every part of odin as a process of this machine."""
