use super::*;
use crate::kind::Kind;

fn pairs(list: &[(&str, &str)]) -> Vec<String> {
    list.iter().map(|(old, new)| format!("{old}={new}")).collect()
}

fn renaming() -> Renaming {
    Renaming::parse(&pairs(&[("a.old", "a.new"), ("b.old", "b.new"), ("c.old", "c.new")])).unwrap()
}

const SERVER: &str = "624c323b-86d5-4dcb-9462-ce0d2075529a";

/// A member with a header, two configurations and an entry with data.
fn file() -> Vec<u8> {
    let mut bytes = Vec::new();
    let records = [
        format!(
            r#"{{"cluster_id":"90a3f6ff-fcf9-4405-8515-1bab9cfda53d","local_address":"ssl:b.old:6643","name":"OVN_Northbound","prev_servers":{{"1":"ssl:a.old:6643"}},"server_id":"{SERVER}"}}"#
        ),
        r#"{"term":1,"index":2,"servers":{"1":"ssl:a.old:6643","2":"ssl:b.old:6643"}}"#.to_owned(),
        r#"{"term":1,"index":3,"data":[null,{"host":"ssl:a.old:6643"}]}"#.to_owned(),
        r#"{"term":1,"index":4,"servers":{"1":"ssl:a.old:6643","2":"ssl:b.old:6643","3":"ssl:c.old:6643"}}"#.to_owned(),
    ];
    for record in records {
        raft_log::write(&mut bytes, format!("{record}\n").as_bytes()).unwrap();
    }
    bytes
}

/// A data directory with the file of member `b`.
fn options(purpose: &str, host: &str) -> Options {
    let directory = std::env::temp_dir().join(format!("rename-{}-{purpose}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let options = Options {
        kind: Kind::Northbound,
        data_directory: directory,
        host: host.into(),
        ..crate::options::tests::options()
    };
    std::fs::write(options.kind.file(&options.data_directory), file()).unwrap();
    options
}

#[test]
fn lists_that_cannot_be_carried_out_are_refused() {
    let error = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        Renaming::parse(&list).unwrap_err().to_string()
    };
    for (list, words) in [
        (&["a"][..], "\"a\" is not OLD=NEW"),
        (&["a="], "is not OLD=NEW"),
        (&["a=b=c"], "is not OLD=NEW"),
        (&["a=x", "a=y"], "a is given twice"),
        (&["a=x", "b=x"], "two members would have the same new name"),
        (&["a=b", "b=c"], "b is an old and a new name"),
    ] {
        let message = error(list);
        assert!(message.contains(words) && message.ends_with("nothing was changed"), "{message}");
    }
}

#[test]
fn only_known_hosts_are_replaced() {
    let renaming = Renaming::parse(&pairs(&[("a", "new"), ("192.0.2.1", "2001:db8::1")])).unwrap();
    for (old, new) in [
        ("ssl:a:6643", "ssl:new:6643"),
        ("tcp:192.0.2.1:6643", "tcp:[2001:db8::1]:6643"),
        ("ssl:aa:6643", "ssl:aa:6643"),
        ("unix:/a", "unix:/a"),
    ] {
        assert_eq!(renaming.address(old), new);
    }
}

#[test]
fn a_member_is_renamed_once_and_its_original_is_kept() {
    let options = options("once", "b.new");
    let path = options.kind.file(&options.data_directory);
    assert!(apply(&options).unwrap().is_none(), "nothing was requested");
    save_request(&options, &renaming()).unwrap();
    let kept = apply(&options).unwrap().unwrap();
    assert_eq!(std::fs::read(&kept).unwrap(), file());
    let renamed = read(&path).unwrap();
    assert_eq!(renamed.local, "ssl:b.new:6643");
    assert_eq!(renamed.servers["3"], "ssl:c.new:6643");
    let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
    assert!(text.contains(r#"[null,{"host":"ssl:a.old:6643"}]"#), "data is not touched: {text}");
    assert_eq!(text.matches(".old").count(), 1, "{text}");
    // A request that is left from a crash finds nothing to do.
    save_request(&options, &renaming()).unwrap();
    assert!(apply(&options).unwrap().is_none());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert!(!request_path(&options).exists());
    std::fs::remove_dir_all(&options.data_directory).unwrap();
}

#[test]
fn a_list_that_does_not_fit_the_file_changes_nothing() {
    let with = |list: &[(&str, &str)]| Renaming::parse(&pairs(list)).unwrap();
    for (purpose, host, renaming, words) in [
        ("lacks", "b.new", with(&[("a.old", "a.new"), ("b.old", "b.new")]), "lacks members of this cluster: c.old"),
        (
            "unknown",
            "b.new",
            with(&[("a.old", "a.new"), ("b.old", "b.new"), ("c.old", "c.new"), ("d.old", "d.new")]),
            "d.old is not a member of this cluster",
        ),
        ("volume", "a.new", renaming(), "this file is of member b.old, whose new name would be b.new"),
        ("own", "b.new", with(&[("a.old", "a.new")]), "this file is of member b.old, which is not in the list"),
    ] {
        let options = options(purpose, host);
        save_request(&options, &renaming).unwrap();
        let message = apply(&options).unwrap_err().to_string();
        assert!(message.contains(words) && message.ends_with("nothing was changed"), "{message}");
        assert_eq!(std::fs::read(options.kind.file(&options.data_directory)).unwrap(), file());
        std::fs::remove_dir_all(&options.data_directory).unwrap();
    }
}

#[test]
fn a_damaged_file_is_not_renamed() {
    let options = options("damaged", "b.new");
    let path = options.kind.file(&options.data_directory);
    let mut flipped = file();
    let at = flipped.len() / 2;
    flipped[at] ^= 1;
    // The length of the third record, which is then longer than the rest of the file.
    let text = String::from_utf8(file()).unwrap();
    let (third, _) = text.match_indices("OVSDB CLUSTER ").nth(2).unwrap();
    let mut long = file();
    long.insert(third + "OVSDB CLUSTER ".len(), b'9');
    for bytes in [flipped, long] {
        std::fs::write(&path, &bytes).unwrap();
        save_request(&options, &renaming()).unwrap();
        let message = apply(&options).unwrap_err().to_string();
        assert!(message.contains("is damaged") && message.contains("nothing was changed"), "{message}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    std::fs::remove_dir_all(&options.data_directory).unwrap();
}
