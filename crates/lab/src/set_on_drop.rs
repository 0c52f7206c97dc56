//! A stop flag for threads that work until another one is done.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when dropped, also by a panic. Without it `std::thread::scope` would wait forever for threads that
/// only stop at the flag, and hide the panic.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_sets_the_flag() {
        let stop = AtomicBool::new(false);
        let result = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _stop = SetOnDrop(&stop);
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
                panic!("on purpose");
            })
        });
        assert!(result.is_err());
    }
}
