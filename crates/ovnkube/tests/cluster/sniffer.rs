//! Sees on a machine or in a pod which marked frames arrive, and sends raw frames from a pod.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use lab::Machine;
use lab::frames::hexadecimal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Prints the number of each mark that it finds in a frame on one of the interfaces. Marks and interface numbers are lists
/// separated by commas.
const SNIFF: &str = r#"
    use strict;
    my ($interfaces, $marks) = @ARGV;
    my %on = map { $_ => 1 } split(/,/, $interfaces);
    my @marks = map { pack("H*", $_) } split(/,/, $marks);
    my %printed;
    socket(my $socket, 17, 3, 0x0300) or die "socket: $!";
    setsockopt($socket, 1, 33, pack("l", 8 << 20));
    $| = 1;
    print "ready\n";
    while (defined(my $from = recv($socket, my $frame, 65536, 0))) {
        next unless $on{(unpack("S n l", $from))[2]};
        for my $number (0 .. $#marks) {
            next if $printed{$number} || index($frame, $marks[$number]) < 0;
            $printed{$number} = 1;
            print "$number\n";
        }
    }
"#;

/// Sends frames that it reads as lines of hex.
const SEND: &str = r#"
    use strict;
    my ($index) = @ARGV;
    socket(my $socket, 17, 3, 0) or die "socket: $!";
    bind($socket, pack("S n l S C C a8", 17, 3, $index, 0, 0, 0, "")) or die "bind: $!";
    while (my $line = <STDIN>) {
        chomp $line;
        defined send($socket, pack("H*", $line), 0) or die "send: $!";
        # So that no queue on the way overflows.
        select(undef, undef, undef, 0.002);
    }
"#;

/// A network namespace on a machine: the machine's own, or a pod's.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    /// Path of a pod's network namespace on the machine.
    pub(crate) network: Option<String>,
}

impl Place {
    pub(crate) fn words<'a>(&'a self, inside: &mut Vec<String>, words: &[&'a str]) {
        if let Some(network) = &self.network {
            inside.extend(["nsenter".to_owned(), format!("--net={network}")]);
        }
        inside.extend(words.iter().map(|word| (*word).to_owned()));
    }

    pub(crate) fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut all = Vec::new();
        self.words(&mut all, words);
        self.machine.run(&all.iter().map(String::as_str).collect::<Vec<_>>()).map_err(|error| error.to_string())
    }

    /// Its network devices: index and name.
    fn devices(&self) -> Vec<(u64, String)> {
        let links: Value = serde_json::from_str(&self.run(&["ip", "-j", "link"]).unwrap()).unwrap();
        let device = |link: &Value| (link["ifindex"].as_u64().unwrap(), link["ifname"].as_str().unwrap().to_owned());
        links.as_array().unwrap().iter().map(device).collect()
    }

    /// Sends frames from `eth0`.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        let (index, _) = self.devices().into_iter().find(|(_, name)| name == "eth0").unwrap();
        let lines: String = frames.iter().map(|frame| hexadecimal(frame) + "\n").collect();
        let mut words = Vec::new();
        let index = index.to_string();
        self.words(&mut words, &["perl", "-e", SEND, &index]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.machine.run_with_input(&words, &lines).unwrap();
    }
}

/// What arrives at a place. It stops when it is dropped.
pub(crate) struct Sniffer {
    pub(crate) place: String,
    seen: Arc<Mutex<BTreeSet<usize>>>,
    child: Child,
}

impl Sniffer {
    /// Starts to look for these marks; returns when it sees every frame.
    pub(crate) fn start(place: &Place, marks: &[Vec<u8>]) -> Self {
        // On a node the pods' interfaces show what pods send, whether or not it arrives anywhere.
        let of_pods = |name: &str| place.network.is_none() && (name.starts_with("pod") || name.starts_with("veth"));
        let devices = place.devices().into_iter().filter(|(_, name)| !of_pods(name));
        let devices = devices.map(|(index, _)| index.to_string()).collect::<Vec<_>>().join(",");
        let marks = marks.iter().map(|mark| hexadecimal(mark)).collect::<Vec<_>>().join(",");
        let mut words = Vec::new();
        place.words(&mut words, &["perl", "-e", SNIFF, &devices, &marks]);
        let mut command = place.machine.command(&words).unwrap();
        let mut child = place.machine.spawn(command.stdout(Stdio::piped()).stdin(Stdio::null())).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match line.parse() {
                    Ok(number) => drop(shared.lock().unwrap().insert(number)),
                    Err(_) => drop(ready.send(())),
                }
            }
        });
        is_ready.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("the sniffer at {} did not start", place.name));
        Self { place: place.name.clone(), seen, child }
    }

    pub(crate) fn saw(&self, mark: usize) -> bool {
        self.seen.lock().unwrap().contains(&mark)
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
