//! Runs all measurements, one lab after the other.

use anyhow::Result;
use bench::Figure;

use crate::disk::{Census, Formula};
use crate::options::Options;
use crate::{disk, plane, relay, sync};

/// What the labs contain in the end.
const SMALL: Census = Census { nodes: 20, pods: 1_000, services: 200, policies: 100 };
const MIDDLE: Census = Census { nodes: 100, pods: 5_000, services: 500, policies: 300 };

/// A part adds figures; the small lab also finds the formula.
type Part = fn(&Options, &mut Vec<Figure>, &mut Option<Formula>) -> Result<()>;

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut figures = vec![bench::calibration()?];
    let mut formula = None;
    let mut failure = None;
    for (name, part) in [("small", small as Part), ("middle", middle), ("sync", synced), ("relay", relayed)] {
        if !options.wants(name) {
            continue;
        }
        // Keep the figures before a failure; the next lab is independent.
        if let Err(error) = part(options, &mut figures, &mut formula) {
            eprintln!("the part {name} failed: {error:#}");
            failure = failure.or(Some(error));
        }
        bench::write_figures("database", &figures)?;
    }
    let path = bench::write_figures("database", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    failure.map_or(Ok(()), Err)
}

fn small(options: &Options, figures: &mut Vec<Figure>, formula: &mut Option<Formula>) -> Result<()> {
    let lab = plane::grow(SMALL.divided(options.divisor), figures)?;
    let found = disk::formula(&lab.stages)?;
    found.figures(figures);
    disk::growth(&lab.stages, figures);
    *formula = Some(found);
    Ok(())
}

fn middle(options: &Options, figures: &mut Vec<Figure>, formula: &mut Option<Formula>) -> Result<()> {
    let lab = plane::grow(MIDDLE.divided(options.divisor), figures)?;
    // Without the small lab there is nothing to compare with.
    if let Some(formula) = formula {
        disk::check(formula, &lab.stages, figures)?;
    }
    Ok(())
}

fn synced(_: &Options, figures: &mut Vec<Figure>, _: &mut Option<Formula>) -> Result<()> {
    figures.extend(sync::figures()?);
    Ok(())
}

fn relayed(options: &Options, figures: &mut Vec<Figure>, _: &mut Option<Formula>) -> Result<()> {
    figures.extend(relay::figures(options.divisor)?);
    Ok(())
}
