# Stands in for the official image `rabbitmq:4` where no image registry is reached: Debian's package
# of the same series, in a base that holds it already. The server's own programs come before Debian's
# wrappers, which write their output to files.
ARG ODIN_RABBITMQ_BASE
FROM ${ODIN_RABBITMQ_BASE}
RUN rm -rf /var/lib/rabbitmq/.erlang.cookie /var/lib/rabbitmq/mnesia \
    && usermod --shell /usr/sbin/nologin rabbitmq \
    && chown -R rabbitmq:rabbitmq /var/lib/rabbitmq /etc/rabbitmq
ENV PATH=/usr/lib/rabbitmq/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/var/lib/rabbitmq \
    LANG=C.UTF-8 \
    RABBITMQ_LOGS=-
WORKDIR /var/lib/rabbitmq
USER rabbitmq
CMD ["rabbitmq-server"]
