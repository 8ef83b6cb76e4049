#!/bin/sh
# Makes the data folder at the first start, as the official image does, then runs the server.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    umask 077
    mkdir -p "$PGDATA"
    secret=$(mktemp)
    trap 'rm -f "$secret"' EXIT
    printf '%s\n' "$POSTGRES_PASSWORD" >"$secret"
    initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile="$secret" --encoding=UTF8 \
        --locale=C.UTF-8 --auth-local=trust --auth-host=scram-sha-256
    rm -f "$secret"
    printf "listen_addresses = '*'\nunix_socket_directories = '/var/run/postgresql'\n" \
        >>"$PGDATA/postgresql.conf"
    printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
    printf 'CREATE DATABASE %s;\n' "$POSTGRES_DB" | postgres --single -D "$PGDATA" postgres
fi
unset POSTGRES_PASSWORD
exec "$@"
