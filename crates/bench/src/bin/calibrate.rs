//! `calibrate`: measures the speed of this machine. Writes `target/bench/calibration.json`.

use anyhow::Result;

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        anyhow::bail!("unexpected argument {argument:?}: calibrate takes no arguments");
    }
    let figures = [bench::calibration()?];
    let path = bench::write_figures("calibration", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}
