//! The plugin: CPU of one process per call, compared with a program that does nothing.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bench::{Contender, Figure, Goal, RUNS, interleave};
use lab::Machine;

use crate::world::World;

/// Calls in one run: the kernel counts the CPU of children in hundredths of a second.
const CALLS: u32 = 200;
const LARGEST: f64 = 1.5;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let binary = std::env::current_exe()?.with_file_name("../shim/ovn-k8s-cni-overlay");
    let size =
        std::fs::metadata(&binary).with_context(|| format!("{}: run `make bench-node`", binary.display()))?.len();
    let machine = world.node(1)?;
    // Where the machine has it: below its own root.
    let directory = format!("/proc/{}/root/run/bench", machine.init().pid);
    std::fs::create_dir_all(&directory)?;
    std::fs::copy(&binary, format!("{directory}/shim"))?;
    let mut contenders: Vec<Contender<'_, anyhow::Error>> = vec![
        ("shim, one STATUS", Box::new(|| calls(&machine, "/run/bench/shim"))),
        ("/bin/true", Box::new(|| calls(&machine, "/bin/true"))),
    ];
    let samples = interleave(RUNS, &mut contenders)?;
    for sample in &samples {
        println!("{sample}");
    }
    let [shim, nothing] = samples.as_slice() else { bail!("a sample is missing") };
    Ok(vec![
        Figure::new("shim: size", size as f64 / 1e6, "MB").with_goal(Goal::AtMost(LARGEST)),
        Figure::new("shim: CPU of one call", shim.median(), "ms"),
        Figure::new("/bin/true: CPU of one call", nothing.median(), "ms"),
        bench::ratio("shim: CPU of one call against /bin/true", shim, nothing, Some(Goal::AtMost(3.0))),
    ])
}

/// Milliseconds of CPU of one call, in the mean of many.
fn calls(machine: &Machine, program: &str) -> Result<f64> {
    let before = bench::children_cpu_seconds()?;
    for _ in 0..CALLS {
        let mut command = Command::new(program);
        command.env_clear().env("CNI_COMMAND", "STATUS").env("CNI_PATH", "/opt/cni/bin");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = machine.spawn(&mut command)?;
        if let Some(mut input) = child.stdin.take() {
            let configuration = br#"{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#;
            // One that does nothing does not read it either.
            let _ = std::io::Write::write_all(&mut input, configuration);
        }
        let ended = child.wait()?;
        if !ended.success() {
            bail!("{program} ended with {ended}");
        }
    }
    Ok((bench::children_cpu_seconds()? - before) * 1e3 / f64::from(CALLS))
}
