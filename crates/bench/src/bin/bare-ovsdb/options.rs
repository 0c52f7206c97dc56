//! The command line, parsed without a library.

use std::fmt;
use std::time::Duration;

pub(crate) const HELP: &str = "\
bare-ovsdb: the least that an OVSDB client can do, as a yardstick for others

usage: bare-ovsdb write --remote REMOTE [--rows N] [--batch N] [--switch NAME] [--delete]
       bare-ovsdb read  --remote REMOTE [--tables NAME,NAME] [--method NAME]

write makes a logical switch, then logical switch ports in it, one transaction for each batch,
      one transaction at a time; the clock runs over the ports alone
read  sends one monitor request and throws the reply away

  --remote REMOTE    unix:PATH or tcp:HOST:PORT, as Open vSwitch writes them
  --database NAME    the database (OVN_Northbound)
  --timeout SECONDS  how long to wait for the server (60)
  --rows N           write: ports to make (10000, at most 16000000)
  --batch N          write: ports in a transaction (200)
  --switch NAME      write: the switch to make (bare-PID)
  --delete           write: delete the switch and its ports afterwards
  --tables A,B       read: the tables to read (Logical_Switch,Logical_Switch_Port);
                     A:x+y for the columns x and y alone
  --method NAME      read: monitor, monitor_cond or monitor_cond_since (monitor)
  --help             this text

Prints one line of JSON; bytes are those sent by write, those received by read:
  {\"mode\",\"rows\",\"batches\",\"bytes\",\"seconds\",\"rows_per_second\"}";

/// Ports that have an address of their own.
const MOST_ROWS: u64 = 16_000_000;

/// Address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The path of a unix socket.
    Unix(String),
    /// `host:port`.
    Tcp(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Help,
    Write(WriteOptions),
    Read(ReadOptions),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) remote: Remote,
    pub(crate) database: String,
    pub(crate) timeout: Duration,
    pub(crate) rows: u64,
    pub(crate) batch: u64,
    pub(crate) switch: String,
    pub(crate) delete: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadOptions {
    pub(crate) remote: Remote,
    pub(crate) database: String,
    pub(crate) timeout: Duration,
    pub(crate) tables: Vec<TableColumns>,
    pub(crate) method: Method,
}

/// A table and its columns; an empty list means all columns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TableColumns {
    pub(crate) table: String,
    pub(crate) columns: Vec<String>,
}

/// Monitor method. The later two omit default values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Monitor,
    MonitorCond,
    MonitorCondSince,
}

impl Method {
    const ALL: [Method; 3] = [Method::Monitor, Method::MonitorCond, Method::MonitorCondSince];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Monitor => "monitor",
            Method::MonitorCond => "monitor_cond",
            Method::MonitorCondSince => "monitor_cond_since",
        }
    }

    /// Nesting depth of a row in the reply; that of the message is 1.
    pub(crate) fn depth(self) -> usize {
        match self {
            Method::Monitor | Method::MonitorCond => 4,
            // Its result is a list: found, the last transaction, the tables.
            Method::MonitorCondSince => 5,
        }
    }
}

pub(crate) fn parse(arguments: &[String]) -> Result<Action, String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Action::Help);
    }
    let (mode, given) = arguments.split_first().ok_or("no mode: say write or read, or --help")?;
    let own: &[&str] = match mode.as_str() {
        "write" => &["--rows", "--batch", "--switch", "--delete"],
        "read" => &["--tables", "--method"],
        _ => {
            return Err(format!("unknown mode {mode:?}; the first argument must be write, read or --help"));
        }
    };
    let options = collect(mode, own, given)?;
    let last = |name: &str| options.iter().rev().find(|(option, _)| option == name).map(|(_, value)| value.as_str());

    let remote = last("--remote").ok_or("no --remote: say where the server is, as in --remote tcp:127.0.0.1:6641")?;
    let remote = Remote::parse(remote)?;
    let database = name("--database", last("--database").unwrap_or("OVN_Northbound"))?;
    let timeout = Duration::from_secs(number("--timeout", last("--timeout"), 60, 86_400)?);
    if mode == "read" {
        let tables = last("--tables").unwrap_or("Logical_Switch,Logical_Switch_Port").split(',');
        let tables = tables.map(table_columns).collect::<Result<_, _>>()?;
        let wanted = last("--method").unwrap_or("monitor");
        let method = Method::ALL.into_iter().find(|method| method.name() == wanted).ok_or_else(|| {
            format!("--method {wanted:?} is not known: use monitor, monitor_cond or monitor_cond_since")
        })?;
        return Ok(Action::Read(ReadOptions { remote, database, timeout, tables, method }));
    }
    let own_switch = format!("bare-{}", std::process::id());
    Ok(Action::Write(WriteOptions {
        remote,
        database,
        timeout,
        rows: number("--rows", last("--rows"), 10_000, MOST_ROWS)?,
        batch: number("--batch", last("--batch"), 200, MOST_ROWS)?,
        switch: name("--switch", last("--switch").unwrap_or(&own_switch))?,
        delete: last("--delete").is_some(),
    }))
}

/// Pairs of option and value; `--option value` and `--option=value` are the same.
fn collect(mode: &str, own: &[&str], given: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut options = Vec::new();
    let mut given = given.iter();
    while let Some(argument) = given.next() {
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        if !own.contains(&option) && !["--remote", "--database", "--timeout"].contains(&option) {
            return Err(format!("{mode} has no option {option:?}: see --help"));
        }
        let value = match (option, value) {
            ("--delete", None) => String::new(),
            ("--delete", Some(_)) => {
                return Err("--delete takes no value: write it alone".to_owned());
            }
            (_, Some(value)) => value,
            (_, None) => given.next().cloned().ok_or_else(|| format!("{option} has no value: write one after it"))?,
        };
        options.push((option.to_owned(), value));
    }
    Ok(options)
}

fn number(option: &str, text: Option<&str>, default: u64, most: u64) -> Result<u64, String> {
    let Some(text) = text else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("invalid {option} {text:?}: write a whole number from 1 to {most}"))
}

/// Names go into JSON as they are, so they must need no escaping.
fn name(option: &str, text: &str) -> Result<String, String> {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    if text.is_empty() || !text.chars().all(plain) {
        return Err(format!("invalid {option} {text:?}: use letters, digits, '-', '_' and '.'"));
    }
    Ok(text.to_owned())
}

fn table_columns(text: &str) -> Result<TableColumns, String> {
    let (table, columns) = text.split_once(':').map_or((text, None), |(table, columns)| (table, Some(columns)));
    let columns = columns.into_iter().flat_map(|columns| columns.split('+'));
    let columns = columns.map(|column| name("--tables", column)).collect::<Result<_, _>>()?;
    Ok(TableColumns { table: name("--tables", table)?, columns })
}

impl Remote {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Remote::Unix(path.to_owned())),
            Some(("tcp", address)) if has_port(address) => Ok(Remote::Tcp(address.to_owned())),
            Some(("tcp", _)) => {
                Err(format!("--remote {text:?} has no port: write tcp:HOST:PORT, as in tcp:127.0.0.1:6641"))
            }
            Some(("ssl", _)) => Err(format!("--remote {text:?} is ssl, which is not supported: use unix: or tcp:")),
            _ => Err(format!("invalid --remote {text:?}; expected unix:PATH or tcp:HOST:PORT")),
        }
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Unix(path) => write!(f, "unix:{path}"),
            Remote::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Action, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_both_spellings() {
        let one = parse_words("write --remote unix:/run/nb.sock --rows 5 --batch=2 --switch s --delete");
        let two = parse_words("write --delete --switch=s --batch 2 --rows=5 --remote=unix:/run/nb.sock");
        assert_eq!(one, two);
        let Ok(Action::Write(options)) = one else { panic!("not write: {one:?}") };
        assert_eq!((options.rows, options.batch, options.delete), (5, 2, true));
        assert_eq!(options.remote, Remote::Unix("/run/nb.sock".to_owned()));
    }

    #[test]
    fn tables_and_remotes_are_read() {
        let Ok(Action::Read(options)) = parse_words("read --remote tcp:[::1]:6641 --tables A,B:x+y") else {
            panic!("not read")
        };
        let tables: Vec<_> =
            options.tables.iter().map(|table| (table.table.as_str(), table.columns.join(" "))).collect();
        assert_eq!(tables, [("A", String::new()), ("B", "x y".to_owned())]);
        assert_eq!(options.method, Method::Monitor);
        assert_eq!(options.remote.to_string(), "tcp:[::1]:6641");
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        for (line, part) in [
            ("", "no mode"),
            ("scribble", "unknown mode \"scribble\""),
            ("read", "no --remote"),
            ("read --remote tcp:host", "has no port"),
            ("read --remote ssl:host:1", "ssl"),
            ("read --remote /run/x", "unix:PATH or tcp:HOST:PORT"),
            ("read --remote unix:/x --tables A:", "--tables"),
            ("read --remote unix:/x --method peek", "--method \"peek\" is not known"),
            ("read --remote unix:/x --rows 5", "read has no option \"--rows\""),
            ("write --remote unix:/x --rows 0", "invalid --rows \"0\""),
            ("write --remote unix:/x --batch many", "from 1 to"),
            ("write --remote unix:/x --switch a\"b", "--switch"),
            ("write --remote", "--remote has no value"),
            ("write --delete=yes", "takes no value"),
        ] {
            let problem = parse_words(line).expect_err(line);
            assert!(problem.contains(part), "{line}: {problem}");
            assert_eq!(problem.lines().count(), 1);
        }
    }

    #[test]
    fn help_is_printed_with_any_other_option() {
        assert_eq!(parse_words("--help"), Ok(Action::Help));
        assert_eq!(parse_words("write --rows -h"), Ok(Action::Help));
    }
}
