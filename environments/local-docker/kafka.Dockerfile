# Apache Kafka: the jars that `bench setup` fetches, on the Java of the base.
ARG WEIR_BASE
FROM ${WEIR_BASE}
COPY weir/kafka /opt/kafka/libs
