//! Memory of the signer beside that of other processes of the same program.

use std::time::Duration;

use anyhow::Result;
use bench::{Figure, Goal};
use lab::Program;

use crate::site::{Site, TIMEOUT, ovnkube};

/// How long a process may settle after its start.
const SETTLE: Duration = Duration::from_secs(15);

pub(crate) fn figures(site: &Site, figures: &mut Vec<Figure>) -> Result<()> {
    eprintln!("memory of the signer");
    site.serve_signer("standby")?;
    // It has the same libraries: API client, TLS, metrics, logs.
    let program = Program::new("manager", ovnkube()?)
        .arguments(["db", "serve", "nb", "--host", "10.99.0.1", "--peers", "10.99.0.1", "--listen", "127.0.0.1"])
        .arguments(["--namespace", "default", "--metrics-bind-address", "off"]);
    site.control()?.run(&["mkdir", "-p", "/etc/ovn", "/run/ovn"])?;
    site.lab.run(&program)?;
    lab::poll(TIMEOUT, || site.lab.nbctl(&["init"]))?;
    std::thread::sleep(SETTLE);
    let mut memory = Vec::new();
    for (component, name) in [
        ("signer", "ovnkube pki serve that leads, after a rotation"),
        ("standby", "ovnkube pki serve that stands by"),
        ("manager", "ovnkube db serve, idle"),
    ] {
        let used = bench::process_memory(site.pid(component)?)?;
        figures.push(Figure::new(format!("memory: RSS of {name}"), used.resident, "MB"));
        figures.push(Figure::new(format!("memory: PSS of {name}"), used.proportional, "MB"));
        memory.push(used);
    }
    let [signer, standby, manager] = memory.as_slice() else { return Ok(()) };
    for (other, name) in
        [(standby, "one that stands by"), (manager, "ovnkube db serve, idle, which has the same libraries")]
    {
        for (unit, more) in
            [("RSS", signer.resident - other.resident), ("PSS", signer.proportional - other.proportional)]
        {
            let name = format!("memory: {unit} of ovnkube pki serve that leads, more than that of {name}");
            figures.push(Figure::new(name, more, "MB").with_goal(Goal::AtMost(10.0)));
        }
    }
    Ok(())
}
