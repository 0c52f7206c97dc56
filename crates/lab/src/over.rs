//! The end of what other threads do meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says to other threads that it is over when this value goes, also by a panic: who waits for them (`std::thread::scope` does)
/// would else wait for ever, and nobody would read why.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_what_others_do() {
        let over = AtomicBool::new(false);
        let result = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _end = Over(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
                panic!("it went wrong");
            })
        });
        assert!(result.is_err());
    }
}
