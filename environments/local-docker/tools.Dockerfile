# The bench command, which samples, serves the schema registry and serves the ClickHouse engine of libchdb.so.
ARG WEIR_BASE
FROM ${WEIR_BASE}
COPY weir/lib/libchdb.so /usr/local/lib/libchdb.so
COPY weir/bin/bench /usr/local/bin/bench
