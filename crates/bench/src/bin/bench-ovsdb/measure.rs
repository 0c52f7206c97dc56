//! Runs all measurements, one lab after the other.

use anyhow::{Context, Result};
use bench::Figure;
use lab::{Databases, Lab, LabSpec, Ovn};
use serde_json::{Value, json};

use crate::{latency, load, rows, write};

pub(crate) fn run() -> Result<()> {
    let mut figures = vec![bench::calibration()?];
    figures.extend(write::figures()?);
    figures.extend(large()?);
    let path = bench::write_figures("ovsdb", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}

/// Measurements on one server with a large database.
fn large() -> Result<Vec<Figure>> {
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("bench-ovsdb")?.ovn(ovn))?;
    // It would compute flows during the measurement.
    lab.kill("northd")?;
    let remote = lab.record().endpoints.northbound.context("the lab has no northbound database")?;
    let empty_daemon = load::nbctl_daemon(&lab, &remote)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let columns = runtime.block_on(async {
        let client = rows::connect(rows::config(&remote)?).await?;
        rows::fill(&client).await?;
        columns(&client)
    })?;
    drop(runtime);
    let tables: Vec<String> = columns.iter().map(|(table, names)| format!("{table}:{}", names.join("+"))).collect();
    let mut figures = load::figures(&lab, &remote, &tables.join(","), empty_daemon)?;
    let requests: Value = columns.iter().map(|(table, names)| (table.clone(), json!([{"columns": names}]))).collect();
    figures.extend(latency::figures(&remote, &requests)?);
    Ok(figures)
}

/// The tables with all their columns, as our client asks for them, so that the bare one can ask for the same.
fn columns(client: &ovsdb::client::Client) -> Result<Vec<(String, Vec<String>)>> {
    let schema = client.schema().context("the client has no schema")?;
    let table = |name: &&str| {
        let table = schema.tables.get(*name).with_context(|| format!("the schema has no {name}"))?;
        Ok(((*name).to_owned(), table.columns.iter().map(|column| column.name.clone()).collect()))
    };
    rows::TABLES.iter().map(table).collect()
}
