//! Clients of the two databases: a replica of the northbound tables that we write, and the acknowledgements in the
//! southbound one.

use std::collections::BTreeMap;
use std::time::Duration;

use ovn_schema::{Features, northbound, southbound};
use ovsdb::client::{CallError, Client, SequenceCell, TableMonitor};
use ovsdb::operation::Condition;
use ovsdb::replica::{Changes, RowView, Snapshot};
use ovsdb::transaction::{Row, Transaction};
use remotes::{DatabaseAccess, RemoteUpdates};
use topology::plan::TABLES;

use crate::error::ControllerError;

/// The key of `NB_Global.external_ids` with the sequence value. northd does not read that column, so a new value causes no
/// recomputation.
pub(crate) const SEQUENCE: &str = "k8s.ovn.org/controller-sequence";
/// A server that is silent for this long is disconnected; an echo is sent half-way.
const INACTIVITY_LIMIT: Duration = Duration::from_secs(5);

/// A client of the northbound database with a replica of the tables that we write, without the columns that OVN writes:
/// a port that comes up causes no change.
pub(crate) fn northbound(access: &DatabaseAccess, servers: &RemoteUpdates) -> Client {
    let mut config = access.client_config(servers, northbound::DATABASE.name);
    config.probe_interval = INACTIVITY_LIMIT;
    for table in northbound::DATABASE.tables().filter(|table| TABLES.contains(&table.name)) {
        let columns: Vec<&str> = match table.name {
            "NB_Global" => vec!["nb_cfg", "external_ids"],
            _ => table.columns.iter().filter(|column| !column.observed).map(|column| column.name).collect(),
        };
        config = config.monitor(TableMonitor::new(table.name).columns(&columns));
    }
    Client::start(config)
}

/// A client of the southbound database with `nb_cfg` of northd and of each chassis, and the claims of ports.
pub(crate) fn southbound(access: &DatabaseAccess, servers: &RemoteUpdates) -> Client {
    let mut config = access.client_config(servers, southbound::DATABASE.name);
    config.probe_interval = INACTIVITY_LIMIT;
    // Any cluster member: it is mostly read.
    config.leader_only = false;
    config = config.monitor(TableMonitor::new("SB_Global").columns(&["nb_cfg"]));
    config = config.monitor(TableMonitor::new("Chassis_Private").columns(&["name", "nb_cfg"]));
    config = config.monitor(TableMonitor::new("Chassis").columns(&["name"]));
    // `requested_chassis`: northd changes it when a pod moved to another node, and the claims are compared again.
    let claims = ["logical_port", "chassis", "additional_chassis", "requested_chassis"];
    config = config.monitor(TableMonitor::new("Port_Binding").columns(&claims));
    Client::start(config)
}

/// The server's features, none if its schema is not known yet; an error if required columns are missing.
pub(crate) fn features(client: &Client) -> Result<Option<Features>, ControllerError> {
    let Some(schema) = client.schema() else { return Ok(None) };
    let report = northbound::DATABASE.check(&schema);
    report.require_core()?;
    for line in report.lines() {
        tracing::warn!("{line}");
    }
    Ok(Some(report.features()))
}

/// The sequence cell; none while the database has no `NB_Global` row.
pub(crate) fn cell(snapshot: &Snapshot) -> Option<SequenceCell> {
    let uuid = snapshot.table("NB_Global")?.iter().next()?.uuid;
    Some(SequenceCell { table: "NB_Global".into(), uuid, column: "external_ids".into(), key: SEQUENCE.into() })
}

/// The writer of the last commit, from the sequence value; none without one.
pub(crate) fn writer(snapshot: &Snapshot) -> Option<String> {
    let value = cell(snapshot)?.value_in(snapshot)?;
    value.rsplit_once(':').map(|(writer, _)| writer.to_owned())
}

/// Whether the changes include a commit of a controller. A removed sequence value does not count.
pub(crate) fn has_new_sequence(changes: &Changes) -> bool {
    changes.changes.iter().any(|change| {
        let table = changes.snapshot.table_at(change.table).filter(|table| table.schema().name == "NB_Global");
        let Some(schema) = table.map(ovsdb::replica::Table::schema) else { return false };
        let value = |row: &Option<ovsdb::replica::Row>| {
            let view = RowView { uuid: change.uuid, row: row.as_ref()?, schema };
            view.get("external_ids")?.get_str(SEQUENCE)
        };
        let after = value(&change.after);
        after.is_some() && after != value(&change.before)
    })
}

/// Creates the `NB_Global` row that an empty database lacks. northd does so as well; the second insert is refused.
pub(crate) async fn create_global(client: &Client) {
    let mut transaction = Transaction::new();
    transaction.insert("NB_Global", Row::new());
    if let Err(error) = client.transact(&transaction).await {
        tracing::debug!(%error, "NB_Global row not created; northd may have done so");
    }
}

/// `nb_cfg` of every chassis and of northd; none until the database was read.
pub(crate) fn progress(snapshot: &Snapshot) -> Option<(BTreeMap<Box<str>, i64>, i64)> {
    let global = snapshot.table("SB_Global")?.iter().next()?;
    let rows = snapshot.table("Chassis_Private").into_iter().flat_map(ovsdb::replica::Table::iter);
    let chassis = rows.filter_map(|row| Some((row.text("name")?.into(), row.integer("nb_cfg")?))).collect();
    Some((chassis, global.integer("nb_cfg").unwrap_or(0)))
}

/// Removes both rows of a chassis; otherwise `hv_cfg` would wait for it for ever.
pub(crate) async fn remove_chassis(client: &Client, name: &str) -> Result<(), CallError> {
    let mut transaction = Transaction::new();
    for table in ["Chassis", "Chassis_Private"] {
        transaction.delete(table, vec![Condition::equals("name", name)]);
    }
    client.transact(&transaction).await?;
    tracing::info!(chassis = name, "removed chassis without a node");
    Ok(())
}
