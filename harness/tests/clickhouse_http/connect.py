"""Ordinary use of clickhouse-connect against the server at argv[1]:argv[2]; prints `ok`."""

import datetime
import sys

import clickhouse_connect
from clickhouse_connect.driver.exceptions import DatabaseError

host, port = sys.argv[1], int(sys.argv[2])

for compress in (False, "lz4", "zstd", "gzip"):
    client = clickhouse_connect.get_client(host=host, port=port, compress=compress)
    assert client.server_version.startswith("26."), client.server_version
    client.command("DROP TABLE IF EXISTS p")
    client.command(
        "CREATE TABLE p (id UInt64, name LowCardinality(String), q Nullable(Float64), tags Array(String), "
        "at DateTime64(3, 'UTC')) ENGINE = MergeTree ORDER BY id"
    )
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc)
    rows = [[i, f"name {i % 5}", None if i % 2 else i / 4, ["a", f"b{i}"][: i % 3], at] for i in range(10_000)]
    client.insert("p", rows, column_names=["id", "name", "q", "tags", "at"])
    back = client.query("SELECT * FROM p ORDER BY id", settings={"max_threads": 1})
    assert [list(row) for row in back.result_rows[:3]] == [
        [0, "name 0", 0.0, [], at.replace(tzinfo=back.result_rows[0][4].tzinfo)],
        [1, "name 1", None, ["a"], at.replace(tzinfo=back.result_rows[0][4].tzinfo)],
        [2, "name 2", 0.5, ["a", "b2"], at.replace(tzinfo=back.result_rows[0][4].tzinfo)],
    ], back.result_rows[:3]
    assert len(back.result_rows) == 10_000
    one = client.query("SELECT count() FROM p WHERE id < {most:UInt64} AND name = {name:String}", parameters={"most": 100, "name": "name 3"})
    assert one.first_item["count()"] == 20
    assert client.command("SELECT sum(id) FROM p") == 49_995_000
    client.raw_insert("p", ["id", "name", "q", "tags", "at"], b'10000,x,,"[]",2024-01-01 00:00:00.000\n', fmt="CSV")
    with client.query_row_block_stream("SELECT number FROM numbers(200000)") as stream:
        assert sum(len(block) for block in stream) == 200_000
    assert client.raw_query("SELECT 1", fmt="JSONEachRow") == b'{"1":1}\n'
    client.command("CREATE TEMPORARY TABLE tmp (a Int8)")
    client.insert("tmp", [[1], [2]], column_names=["a"])
    assert client.command("SELECT sum(a) FROM tmp") == 3
    for statement, code in (("SELECT * FROM nope", "60"), ("SELEC", "62")):
        try:
            client.query(statement)
        except DatabaseError as error:
            assert f"Code: {code}" in str(error) or f"code: {code}" in str(error).lower(), error
        else:
            raise AssertionError(f"{statement} did not fail")
    client.close()

try:
    clickhouse_connect.get_client(host=host, port=port, username="eve", password="x")
except DatabaseError as error:
    assert "516" in str(error), error
else:
    raise AssertionError("a wrong user was let in")
print("ok")
