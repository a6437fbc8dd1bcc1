"""Ordinary use of the confluent-kafka schema registry client against argv[1], with the schema in argv[2]; prints `ok`."""

import json
import sys
import urllib.request

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

url, schema_file = sys.argv[1], sys.argv[2]


def connect():
    """A client without the cache of another."""
    return SchemaRegistryClient({"url": url})


def refused(status, number, ask):
    """Asserts that `ask` is answered with this HTTP status and error code."""
    try:
        ask()
    except SchemaRegistryError as error:
        assert (error.http_status_code, error.error_code) == (status, number), error
        assert error.error_message, error
        return
    raise AssertionError(f"not refused with {number}")


def record(*fields):
    return Schema(json.dumps({"type": "record", "name": "R", "fields": list(fields)}), "AVRO")


A = {"name": "a", "type": "long"}
B = {"name": "b", "type": "int", "default": 0}
C = {"name": "c", "type": "int"}

client = connect()
assert client.get_subjects() == []
refused(404, 40401, lambda: client.get_latest_version("r-value"))
refused(404, 40401, lambda: client.get_versions("r-value"))
refused(404, 40401, lambda: client.lookup_schema("r-value", record(A)))
refused(404, 40403, lambda: client.get_schema(99))

# register, look up, list
text = open(schema_file).read()
workload = Schema(text, "AVRO")
assert client.register_schema("sensor-batches-value", workload) == 1
assert connect().register_schema("sensor-batches-value", workload) == 1
assert json.loads(connect().get_schema(1).schema_str) == json.loads(text)
assert client.register_schema("r-value", record(A)) == 2
assert client.register_schema("r-value", record(A, B)) == 3
assert client.register_schema("copy-value", record(A)) == 2
assert client.get_subjects() == ["copy-value", "r-value", "sensor-batches-value"]
assert client.get_versions("r-value") == [1, 2]
latest = client.get_latest_version("r-value")
assert (latest.subject, latest.version, latest.schema_id) == ("r-value", 2, 3)
first = client.get_version("r-value", 1)
assert (first.version, first.schema_id, json.loads(first.schema.schema_str)["fields"]) == (1, 2, [A])
found = connect().lookup_schema("r-value", record(A))
assert (found.subject, found.version, found.schema_id) == ("r-value", 1, 2)
refused(404, 40402, lambda: client.get_version("r-value", 9))
refused(404, 40403, lambda: connect().lookup_schema("r-value", record(C)))

# compatibility
assert client.get_compatibility() == "BACKWARD"
assert client.test_compatibility("r-value", record(A, B))
assert not client.test_compatibility("r-value", record(A, C))
assert client.test_compatibility("r-value", record(A, B), version=1)
refused(409, 409, lambda: client.register_schema("r-value", record(A, C)))
refused(404, 40408, lambda: client.get_compatibility("r-value"))
client.set_compatibility("r-value", "FULL_TRANSITIVE")
assert client.get_compatibility("r-value") == "FULL_TRANSITIVE"
client.set_compatibility("r-value", "NONE")
assert client.register_schema("r-value", record(A, C)) == 4
refused(422, 42203, lambda: client.set_compatibility("r-value", "SOMEHOW"))
client.set_compatibility(level="FORWARD")
assert client.get_compatibility() == "FORWARD"
client.set_compatibility(level="BACKWARD")

# what is no schema
refused(422, 42201, lambda: client.register_schema("x-value", Schema('{"type":"reckord"}', "AVRO")))
refused(422, 42201, lambda: client.register_schema("x-value", Schema('{"type":"object"}', "JSON")))

# delete
assert client.delete_version("r-value", 1) == 1
assert connect().get_versions("r-value") == [2, 3]
assert client.delete_subject("copy-value") == [1]
assert connect().get_subjects() == ["r-value", "sensor-batches-value"]
refused(404, 40401, lambda: connect().get_latest_version("copy-value"))

# serialise and deserialise: the id in the frame is the registry's
context = SerializationContext("sensor-batches", MessageField.VALUE)
serializer = AvroSerializer(connect(), text)
event = {"seq": 0, "name": "metric_1", "unit": "volt", "value": 7, "quality": None, "tags": ["tag-1"]}
batch = {"batch_id": 1, "sensor": "sensor-1", "region": None, "batch_ts": 1, "send_ts": 2, "events": [event]}
framed = serializer(batch, context)
assert framed[:5] == b"\0\0\0\0\1", framed[:5]
back = AvroDeserializer(connect())(framed, context)
assert (back["batch_id"], back["events"]) == (1, [event]), back

# what the client does not ask itself
with urllib.request.urlopen(f"{url}/schemas/types") as answer:
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert json.load(answer) == ["AVRO"]
for path, expected in {
    "/mode": {"mode": "READWRITE"},
    "/schemas/ids/1/versions": [{"subject": "sensor-batches-value", "version": 1}],
    "/subjects/r-value/versions/latest/schema": {"type": "record", "name": "R", "fields": [A, C]},
}.items():
    with urllib.request.urlopen(url + path) as answer:
        got = json.load(answer)
        assert got == expected, (path, got)

print("ok")
