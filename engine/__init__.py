"""The engine service: owns shards, decides, commits and serves the HTTP API."""
