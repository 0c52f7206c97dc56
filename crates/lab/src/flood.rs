//! A pod that sends raw frames at a steady rate, until it is stopped.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};

use crate::error::{Error, Result};
use crate::frames::hexadecimal;
use crate::machine::Machine;

/// Sends the frames that it reads as lines of hex, in turn, from an interface at a rate per second, until its input ends;
/// prints how many it has sent. Perl is in every Debian.
const SCRIPT: &str = r#"
    use strict;
    my ($index, $rate) = @ARGV;
    socket(my $socket, 17, 3, 0) or die "socket: $!";
    bind($socket, pack("S n l S C C a8", 17, 3, $index, 0, 0, 0, "")) or die "bind: $!";
    my @frames;
    while (my $line = <STDIN>) { chomp $line; last if $line eq "go"; push @frames, pack("H*", $line); }
    $| = 1;
    print "started\n";
    my $input = "";
    vec($input, fileno(STDIN), 1) = 1;
    my ($start, $sent) = (now(), 0);
    while (!select(my $ready = $input, undef, undef, 0.001)) {
        my $due = int((now() - $start) * $rate);
        for (; $sent < $due; $sent++) { send($socket, $frames[$sent % @frames], 0); }
    }
    print "$sent\n";
"#;

/// Seconds of the monotonic clock, as Perl's `now()`: Debian's smallest Perl has no module for fractions of seconds.
pub(crate) const NOW: &str = r#"
    use POSIX ();
    my %clock_gettime = (x86_64 => 228, aarch64 => 113);
    sub now {
        my $time = "\0" x 16;
        syscall($clock_gettime{(POSIX::uname())[4]}, 1, $time);
        my ($seconds, $nanoseconds) = unpack("q q", $time);
        return $seconds + $nanoseconds / 1e9;
    }
"#;

/// A running flood; it ends when it is dropped.
#[derive(Debug)]
pub struct Flood {
    child: Child,
}

impl Flood {
    /// Starts to send the frames in turn from the interface `eth0` of a pod; returns when it does.
    pub(crate) fn start(node: &Machine, netns: &str, frames: &[Vec<u8>], rate: u32) -> Result<Self> {
        let inside = ["ip", "netns", "exec", netns];
        let text = node.run(&[&inside[..], &["ip", "-o", "link", "show", "dev", "eth0"]].concat())?;
        let index = text.split(':').next().unwrap_or_default().trim().to_owned();
        let rate = rate.to_string();
        let script = format!("{NOW}{SCRIPT}");
        let words = [&inside[..], &["perl", "-e", &script, &index, &rate]].concat();
        let mut command = node.command(&words)?;
        let mut child = node.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut lines: String = frames.iter().map(|frame| hexadecimal(frame) + "\n").collect();
        lines.push_str("go\n");
        let flood = |what: &str| Error::io(format!("cannot {what} the flood of {netns}"));
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(lines.as_bytes()).map_err(flood("start"))?;
        }
        if let Some(stdout) = &mut child.stdout {
            let mut started = [0; "started\n".len()];
            stdout.read_exact(&mut started).map_err(flood("start"))?;
        }
        Ok(Self { child })
    }

    /// Stops, and returns how many frames were sent.
    pub fn stop(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(stdout) = &mut self.child.stdout {
            stdout.read_to_string(&mut text).map_err(Error::io("cannot stop a flood"))?;
        }
        text.trim().parse().map_err(|_| Error::Invalid(format!("a flood printed {text:?} instead of a number")))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
