//! Runs all measurements in one lab.

use anyhow::Result;

use crate::options::Options;
use crate::site::Site;
use crate::{listener, memory, nodes, rotation, tls};

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut figures = vec![bench::calibration()?];
    let site = Site::start()?;
    if options.wants("rotation") {
        rotation::figures(&site, options.sessions, &mut figures)?;
    }
    if options.wants("nodes") || options.wants("listener") {
        let nodes = nodes::Nodes::create(&site, options.sessions)?;
        if options.wants("listener") {
            listener::figures(&site, &nodes, &mut figures)?;
        }
        if options.wants("nodes") {
            nodes::figures(&site, &nodes, &mut figures)?;
        }
    }
    if options.wants("rotation") {
        // The signer has issued and rotated by now.
        memory::figures(&site, &mut figures)?;
        bench::write_figures("pki", &figures)?;
    }
    if options.wants("tls") {
        tls::figures(&site, &mut figures)?;
    }
    let path = bench::write_figures("pki", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}
