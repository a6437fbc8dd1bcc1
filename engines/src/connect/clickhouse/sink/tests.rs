//! The sink against a server that answers as it is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

use super::*;

/// What the server does with one insert.
#[derive(Clone, Copy)]
enum Answer {
    Accept,
    Refuse(u32),
    HangUp,
}

/// An insert as it arrived: its deduplication token and its body.
type Insert = (String, Vec<u8>);

/// Describes a table of one UInt8 column `n`, and gives the answers to inserts in turn; it accepts once they are used up.
fn server(answers: Vec<Answer>) -> (Uri, Arc<Mutex<Vec<Insert>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = Uri::parse_sink(&format!("clickhouse://{}/d/t", listener.local_addr().unwrap())).unwrap();
    let inserts = Arc::new(Mutex::new(Vec::new()));
    let (seen, answers) = (Arc::clone(&inserts), Arc::new(Mutex::new(answers.into_iter())));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen, answers) = (stream.unwrap(), Arc::clone(&seen), Arc::clone(&answers));
            thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                while let Some((path, body)) = request(&mut reader) {
                    let answer = match path.split_once("insert_deduplication_token=") {
                        None => {
                            let describe = "[\"n\",\"UInt8\",\"\",\"\",\"\",\"\",\"\"]\n";
                            write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{describe}", describe.len())
                                .unwrap();
                            continue;
                        }
                        Some((_, token)) => {
                            seen.lock().unwrap().push((token.to_owned(), body));
                            answers.lock().unwrap().next().unwrap_or(Answer::Accept)
                        }
                    };
                    match answer {
                        Answer::Accept => write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap(),
                        Answer::Refuse(code) => {
                            let body = format!("Code: {code}. DB::Exception: no");
                            let length = body.len();
                            write!(
                                &stream,
                                "HTTP/1.1 500 X\r\nX-ClickHouse-Exception-Code: {code}\r\n\
                                             Content-Length: {length}\r\n\r\n{body}"
                            )
                            .unwrap();
                        }
                        Answer::HangUp => return,
                    }
                }
            });
        }
    });
    (uri, inserts)
}

fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if path.is_empty() {
            path = line.split(' ').nth(1)?.to_owned();
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

fn batch(values: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_new(schema(), vec![column]).unwrap()
}

fn open(uri: &Uri, inserts: u16) -> ClickHouse {
    let args = ClickHouseArgs {
        inserts,
        max_rows: 2,
        insert_format: super::super::block::InsertFormat::Rowbinary,
        ..ClickHouseArgs::default()
    };
    ClickHouse::open(uri, &args, schema()).unwrap()
}

fn start(table: &ClickHouse) -> (Arc<Inserts<u32>>, Receiver<u32>) {
    let (report, heard): (Sender<u32>, Receiver<u32>) = channel();
    let report = Mutex::new(report);
    (table.start(move |receipt| report.lock().unwrap().send(receipt).unwrap_or(())), heard)
}

fn settle(inserts: &Inserts<u32>) -> Result<(), Error> {
    while !inserts.settle(Duration::from_secs(60))? {}
    Ok(())
}

#[test]
fn every_block_arrives_once_and_is_acknowledged() {
    let (uri, seen) = server(vec![]);
    let table = open(&uri, 3);
    let (inserts, heard) = start(&table);
    let mut writer = table.writer(&inserts).unwrap();
    for receipt in 0..20u32 {
        writer.append(&batch(&[i64::from(receipt)])).unwrap();
        writer.append(&batch(&[7])).unwrap();
        assert!(writer.full());
        writer.flush(receipt).unwrap();
    }
    settle(&inserts).unwrap();
    inserts.close().unwrap();
    drop((writer, inserts, table));
    let mut receipts: Vec<u32> = heard.iter().collect();
    receipts.sort_unstable();
    assert_eq!(receipts, (0..20).collect::<Vec<_>>());
    let mut bodies: Vec<Vec<u8>> = seen.lock().unwrap().iter().map(|(_, body)| body.clone()).collect();
    bodies.sort();
    assert_eq!(bodies, (0..20).map(|n| vec![n, 7]).collect::<Vec<_>>());
    let tokens: HashMap<String, usize> = seen.lock().unwrap().iter().map(|(token, _)| (token.clone(), 1)).collect();
    assert_eq!(tokens.len(), 20);
}

#[test]
fn a_retry_sends_the_same_bytes_under_the_same_token() {
    let (uri, seen) = server(vec![Answer::Accept, Answer::HangUp, Answer::HangUp, Answer::Refuse(252), Answer::Accept]);
    let table = open(&uri, 1);
    let (inserts, heard) = start(&table);
    let mut writer = table.writer(&inserts).unwrap();
    for receipt in [1, 2] {
        writer.append(&batch(&[i64::from(receipt)])).unwrap();
        writer.flush(receipt).unwrap();
    }
    settle(&inserts).unwrap();
    inserts.close().unwrap();
    assert_eq!([heard.recv(), heard.recv()], [Ok(1), Ok(2)]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    assert!(seen[1..].iter().all(|insert| *insert == seen[1]), "{seen:?}");
    assert_ne!(seen[0].0, seen[1].0);
}

#[test]
fn a_refusal_that_will_not_pass_ends_inserting_with_its_words() {
    let (uri, seen) = server(vec![Answer::Refuse(16)]);
    let table = open(&uri, 1);
    let (inserts, heard) = start(&table);
    let mut writer = table.writer(&inserts).unwrap();
    writer.append(&batch(&[1])).unwrap();
    writer.flush(1).unwrap();
    assert!(settle(&inserts).is_err());
    writer.append(&batch(&[2])).unwrap();
    assert!(writer.flush(2).is_err());
    let error = inserts.close().unwrap_err();
    assert_eq!(error.to_string(), "ClickHouse refused an insert (code 16): Code: 16. DB::Exception: no");
    drop((writer, inserts, table));
    assert_eq!((heard.iter().count(), seen.lock().unwrap().len()), (0, 1));
}

#[test]
fn a_value_out_of_range_is_named() {
    let (uri, _) = server(vec![]);
    let table = open(&uri, 1);
    let (inserts, _heard) = start(&table);
    let mut writer = table.writer(&inserts).unwrap();
    let error = writer.append(&batch(&[1, 256])).unwrap_err();
    assert_eq!(error.to_string(), "column n: 256 does not fit UInt8");
    inserts.close().unwrap();
}
