//! The frame of every benchmark: how a thing is measured, compared and written down.
//!
//! ```text
//!  contenders ──interleave──▶ Sample (median, spread) ──ratio──┐
//!  CPU time of a thread or process ──per_calibration───────────┼─▶ Figure (+ Goal) ──▶ target/bench/<file>.json
//!  calibration ────────────────────────────────────────────────┘                  └──▶ table on the terminal
//! ```
//!
//! Machines differ and machines are noisy. So two things are compared only by turns on one machine (`interleave`), and
//! a CPU time is told also in units of a fixed piece of work (`calibration`), which goes from machine to machine. Both
//! are for release builds. A goal that is missed is written down as missed; it does not fail the run, since a
//! benchmark that fails is one that gets switched off.
//!
//! The binary `bare-ovsdb` is the floor that OVSDB clients are compared with. It shares no code with this library.

mod calibration;
mod cpu;
mod error;
mod figure;
mod interleave;
mod store;
mod table;

pub use calibration::{calibration, per_calibration};
pub use cpu::{children_cpu_seconds, process_cpu_seconds, thread_cpu_seconds};
pub use error::BenchError;
pub use figure::{Figure, Goal};
pub use interleave::{Contender, RUNS, Sample, interleave, ratio, timed};
pub use store::{figures_folder, write_figures, write_figures_in};
pub use table::table;
