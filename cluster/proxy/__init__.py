"""A controllable TCP proxy: one listener for each link from a part to what it depends on."""
