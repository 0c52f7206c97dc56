//! `run-tests COMMAND... [--and COMMAND...]`: runs `cargo test` commands at once, and prints the ten slowest tests.
//!
//! Most tests of the lab wait for something, so that two streams of test programs use the CPUs better than one. The first
//! command's output is copied as it arrives; of the others, the output of each test program appears when it has ended.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use house::TestTimes;

fn main() -> io::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let commands: Vec<&[String]> = words.split(|word| word == "--and").collect();
    if commands.iter().any(|command| command.is_empty()) {
        eprintln!("usage: run-tests COMMAND... [--and COMMAND...]");
        return Ok(ExitCode::from(2));
    }
    let began = Instant::now();
    let streams: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = commands
            .iter()
            .enumerate()
            .map(|(number, command)| scope.spawn(move || run(command, began, number > 0)))
            .collect();
        running.into_iter().map(|stream| stream.join().unwrap_or_else(|_| Err(io::Error::other("panicked")))).collect()
    });
    let (mut times, mut success) = (TestTimes::new(threads()), true);
    for stream in streams {
        let (own, succeeded) = stream?;
        times.add(own);
        success &= succeeded;
    }
    io::stdout().write_all(times.summary(10).as_bytes())?;
    Ok(if success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many tests a program runs at once, as libtest decides.
fn threads() -> usize {
    let asked = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    asked.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
}

/// Runs one command; returns its tests, and whether it succeeded.
fn run(command: &[String], began: Instant, hold_back: bool) -> io::Result<(TestTimes, bool)> {
    let Some((program, arguments)) = command.split_first() else { return Err(io::Error::other("no command")) };
    // Both streams of the child in one pipe keep their order.
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let mut times = TestTimes::new(threads());
    let mut held = Vec::new();
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        times.line(&text, began.elapsed());
        held.extend_from_slice(&line);
        // A program that failed prints the details of its tests before its result.
        if !hold_back || text.starts_with("test result: ") {
            print(&mut held)?;
        }
        line.clear();
    }
    print(&mut held)?;
    Ok((times, child.wait()?.success()))
}

fn print(held: &mut Vec<u8>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(held)?;
    output.flush()?;
    held.clear();
    Ok(())
}
