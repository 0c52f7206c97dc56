//! Runs all or the selected parts, and writes their figures.

use anyhow::{Result, bail};
use bench::Figure;

use crate::world::World;
use crate::{add, crowd, idle, packets, shim};

type Part = fn(&World) -> Result<Vec<Figure>>;

/// In an order in which no part disturbs the next.
const PARTS: [(&str, Part); 5] = [
    ("shim", shim::measure),
    ("idle", idle::measure),
    ("add", add::measure),
    ("packets", packets::measure),
    ("crowd", crowd::measure),
];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let only: Vec<&str> = match words {
        [] => Vec::new(),
        [flag, parts] if flag == "--only" => parts.split(',').collect(),
        _ => bail!("unknown arguments {words:?}; expected --only and parts, such as --only shim,add"),
    };
    let known = PARTS.map(|(name, _)| name);
    if let Some(unknown) = only.iter().find(|part| !known.contains(part)) {
        bail!("unknown part {unknown:?}; choose from {}", known.join(","));
    }
    let world = World::start()?;
    let mut figures = vec![bench::calibration()?];
    for (name, measure) in PARTS.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        eprintln!("{name}");
        figures.extend(measure(&world)?);
    }
    let path = bench::write_figures("node", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}
