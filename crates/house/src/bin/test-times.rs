//! `cargo test 2>&1 | test-times`: copies its input to stdout, then prints the ten slowest tests.

use std::io::{self, Read as _, Write as _};
use std::time::Instant;

use house::TestTimes;

fn main() -> io::Result<()> {
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (mut times, began) = (TestTimes::new(threads), Instant::now());
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut line, mut chunk) = (Vec::new(), [0; 64 * 1024]);
    loop {
        let length = input.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        // At once, and not by lines: a test that hangs is seen by its unfinished line.
        output.write_all(&chunk[..length])?;
        output.flush()?;
        for byte in &chunk[..length] {
            if *byte == b'\n' {
                times.line(&String::from_utf8_lossy(&line), began.elapsed());
                line.clear();
            } else {
                line.push(*byte);
            }
        }
    }
    output.write_all(times.summary(10).as_bytes())
}
