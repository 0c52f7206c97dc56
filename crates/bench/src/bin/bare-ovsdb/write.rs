//! Writing: a logical switch, then batches of ports, each batch one transaction whose bytes were ready beforehand.

use std::fmt::Write as _;
use std::time::Instant;

use crate::framing::{error_in, find};
use crate::options::WriteOptions;
use crate::report::Report;
use crate::session::{Session, excerpt};

pub(crate) fn run(options: &WriteOptions) -> Result<Report, String> {
    let mut session = Session::open(&options.remote, options.timeout)?;
    let WriteOptions { database, switch, .. } = options;
    let made = transact(
        &mut session,
        &format!(
            r#"{{"id":0,"method":"transact","params":["{database}",{{"op":"insert","table":"Logical_Switch","row":{{"name":"{switch}"}}}}]}}"#
        ),
    )?;
    let uuid = uuid_in(&made).ok_or_else(|| format!("the server's reply has no row UUID: {}", excerpt(&made)))?;
    let batches = prepare(options, &uuid);

    // One transaction in flight: the server serializes commits anyway.
    let start = Instant::now();
    for batch in &batches {
        transact(&mut session, batch)?;
    }
    let time = start.elapsed();

    if options.delete {
        // Ports are removed with their switch.
        let operation =
            format!(r#"{{"op":"delete","table":"Logical_Switch","where":[["_uuid","==",["uuid","{uuid}"]]]}}"#);
        transact(
            &mut session,
            &format!(r#"{{"id":"delete","method":"transact","params":["{database}",{operation}]}}"#),
        )?;
    }
    let bytes = batches.iter().map(|batch| batch.len() as u64).sum();
    Ok(Report { mode: "write", rows: options.rows, batches: batches.len() as u64, bytes, time })
}

fn transact(session: &mut Session, request: &str) -> Result<Vec<u8>, String> {
    session.send(request.as_bytes())?;
    let reply = session.reply(usize::MAX)?.kept;
    if let Some(error) = error_in(&reply) {
        let problem = excerpt(error);
        return Err(format!(
            "the server refused a transaction: {problem}: check --database, or choose another --switch"
        ));
    }
    Ok(reply)
}

/// The first row UUID in a reply.
fn uuid_in(reply: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"[\"uuid\",\"";
    let start = find(reply, BEFORE)? + BEFORE.len();
    let uuid = reply.get(start..start + 36)?;
    let is_uuid = uuid.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    is_uuid.then(|| String::from_utf8_lossy(uuid).into_owned())
}

/// All transactions as bytes, so that formatting is not measured.
fn prepare(options: &WriteOptions, switch_uuid: &str) -> Vec<String> {
    let numbers: Vec<u64> = (0..options.rows).collect();
    let batch = usize::try_from(options.batch).unwrap_or(usize::MAX).max(1);
    let prepared = numbers.chunks(batch).enumerate();
    prepared.map(|(index, numbers)| transaction(options, switch_uuid, index + 1, numbers)).collect()
}

fn transaction(options: &WriteOptions, switch_uuid: &str, id: usize, numbers: &[u64]) -> String {
    let WriteOptions { database, switch, .. } = options;
    let mut text = format!(r#"{{"id":{id},"method":"transact","params":["{database}""#);
    let mut names = Vec::with_capacity(numbers.len());
    for number in numbers {
        let addresses = addresses(*number);
        // A pod's port: what the clients that are compared with this one write too. Writing to a String cannot fail.
        let _ = write!(
            text,
            r#",{{"op":"insert","table":"Logical_Switch_Port","uuid-name":"p{number}","row":{{"name":"{switch}_{number}","addresses":"{addresses}","port_security":"{addresses}","external_ids":["map",[["namespace","{switch}"],["pod","true"]]],"options":["map",[["iface-id-ver","{number:08x}-0000-4000-8000-000000000000"],["requested-chassis","{switch}"]]]}}}}"#
        );
        names.push(format!(r#"["named-uuid","p{number}"]"#));
    }
    let _ = write!(
        text,
        r#",{{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid","{switch_uuid}"]]],"mutations":[["ports","insert",["set",[{}]]]]}}]}}"#,
        names.join(",")
    );
    text
}

/// MAC and IPv4 address of the port, within 10.0.0.0/8.
fn addresses(number: u64) -> String {
    let [.., b, c, d] = (number + 3).to_be_bytes();
    format!("0a:58:0a:{b:02x}:{c:02x}:{d:02x} 10.{b}.{c}.{d}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Framer;
    use crate::options::{Action, parse};

    fn options(arguments: &[&str]) -> WriteOptions {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match parse(&arguments).expect("options") {
            Action::Write(options) => options,
            other => panic!("not write: {other:?}"),
        }
    }

    #[test]
    fn every_row_is_in_one_batch_and_the_last_may_be_short() {
        let options = options(&["write", "--remote", "unix:/x", "--rows", "5", "--batch", "2", "--switch", "s"]);
        let batches = prepare(&options, "0123");
        assert_eq!(batches.len(), 3);
        for (batch, rows) in batches.iter().zip([2, 2, 1]) {
            assert_eq!(batch.matches(r#""op":"insert""#).count(), rows);
            assert_eq!(batch.matches(r#""op":"mutate""#).count(), 1);
            assert_eq!(batch.matches("named-uuid").count(), rows);
            assert_eq!(Framer::default().feed(batch.as_bytes()), Ok(Some(batch.len())), "one whole message");
        }
        assert!(batches[2].contains(r#""name":"s_4""#));
    }

    #[test]
    fn addresses_do_not_repeat_over_a_byte() {
        assert_eq!(addresses(0), "0a:58:0a:00:00:03 10.0.0.3");
        assert_eq!(addresses(300), "0a:58:0a:00:01:2f 10.0.1.47");
    }

    #[test]
    fn the_uuid_of_the_new_row_is_found() {
        let reply = br#"{"result":[{"uuid":["uuid","36bef046-7da7-43a5-905a-c17899216fcb"]}],"error":null,"id":0}"#;
        assert_eq!(uuid_in(reply).as_deref(), Some("36bef046-7da7-43a5-905a-c17899216fcb"));
        assert_eq!(uuid_in(br#"{"result":[{"uuid":["uuid","36bef046"#), None);
        assert_eq!(uuid_in(br#"{"result":[]}"#), None);
    }
}
