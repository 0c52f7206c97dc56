//! Framework of the benchmarks: measuring, comparing and storing figures.
//!
//! ```text
//!  contenders ──interleave──▶ Sample (median, spread) ──ratio──┐
//!  CPU time of a thread or process ──per_calibration───────────┼─▶ Figure (+ Goal) ──▶ target/bench/<file>.json
//!  calibration ────────────────────────────────────────────────┘                  └──▶ table on the terminal
//! ```
//!
//! Machines differ and are noisy. Comparisons therefore interleave runs on one machine (`interleave`), and
//! CPU times are also reported in units of a fixed workload (`calibration`), comparable between machines. Both
//! are for release builds. A missed goal is recorded as missed; it does not fail the run, since a
//! benchmark that fails gets disabled.
//!
//! The binary `bare-ovsdb` is the baseline of OVSDB clients. It shares no code with this library.

mod calibration;
mod cpu;
mod error;
mod figure;
mod interleave;
mod store;
mod table;

pub use calibration::{calibration, per_calibration};
pub use cpu::{
    Memory, children_cpu_seconds, process_cpu_seconds, process_memory, process_peak_megabytes, thread_cpu_seconds,
};
pub use error::BenchError;
pub use figure::{Figure, Goal};
pub use interleave::{Contender, RUNS, Sample, interleave, ratio, timed};
pub use store::{figures_directory, write_figures, write_figures_in};
pub use table::table;
