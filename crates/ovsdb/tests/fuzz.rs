//! Random bytes and corrupted messages through framing and parsing: a bounded number of inputs, the same in every run but for
//! `OVSDB_SEED` (`make soak`).

const INPUTS: u64 = 200_000;

const CORPUS: &[&str] = &[
    r#"{"id":null,"method":"update3","params":["Fuzz","00000000-0000-0000-0000-000000000001",{"T":{"36bef046-7da7-43a5-905a-c17899216fcb":{"insert":{"name":"a","number":7,"share":0.5,"up":true,"ref":["set",[["uuid","36bef046-7da7-43a5-905a-c17899216fcb"]]],"ids":["map",[["k","v"],["l","w"]]]}}}}]}"#,
    r#"{"id":null,"method":"update2","params":["Fuzz",{"T":{"36bef046-7da7-43a5-905a-c17899216fcb":{"modify":{"ref":["uuid","36bef046-7da7-43a5-905a-c17899216fcb"],"ids":["map",[["k","x"]]]}}}}]}"#,
    r#"{"id":null,"method":"update","params":["Fuzz",{"T":{"36bef046-7da7-43a5-905a-c17899216fcb":{"old":{"name":"a"},"new":{"name":"b"}}}}]}"#,
    r#"{"id":7,"error":null,"result":[false,"00000000-0000-0000-0000-000000000001",{"T":{}}]}"#,
    r#"{"id":8,"error":null,"result":[{"uuid":["uuid","36bef046-7da7-43a5-905a-c17899216fcb"]},{"count":1},{"rows":[]},null,{"error":"timed out","details":"\u00e9\\\""}]}"#,
    r#"{"id":9,"error":null,"result":{"name":"D","version":"1.0.0","tables":{"A":{"isRoot":true,"indexes":[["b"]],"columns":{"b":{"type":{"key":{"type":"integer","minInteger":0,"maxInteger":9},"min":0,"max":"unlimited"}}}}}}}"#,
    r#"{"id":"echo","method":"echo","params":[]}"#,
];

/// xorshift: deterministic.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % limit.max(1)
    }
}

fn mutated_message(random: &mut Random) -> Vec<u8> {
    let mut bytes = CORPUS[random.below(CORPUS.len())].as_bytes().to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap_or(0),
            1 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
            2 => bytes.insert(at, b"{}[]\",:\\0-9.e"[random.below(13)]),
            3 => bytes.truncate(at + 1),
            4 => {
                let other = CORPUS[random.below(CORPUS.len())].as_bytes();
                bytes.splice(at..at, other[random.below(other.len())..].iter().copied());
            }
            _ => bytes.extend_from_within(at..(at + random.below(40)).min(bytes.len())),
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes
}

#[test]
fn no_server_message_panics_the_client() {
    let seed = std::env::var("OVSDB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1 << 40 | 1);
    println!("OVSDB_SEED={seed}");
    let mut random = Random(seed);
    let mut parsed = 0;
    for _ in 0..INPUTS {
        parsed += ovsdb::fuzz::one_input(&mutated_message(&mut random));
    }
    println!("{INPUTS} inputs, {parsed} messages parsed");
    // Enough messages were parsed, so that the parser was tested.
    assert!(parsed > 10_000, "only {parsed} messages were parsed");
    assert_eq!(CORPUS.iter().map(|text| ovsdb::fuzz::one_input(text.as_bytes())).sum::<usize>(), CORPUS.len());
}
