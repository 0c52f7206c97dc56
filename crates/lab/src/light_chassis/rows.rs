//! The rows of light chassis: monitored columns, parsing and creation.

use std::collections::HashMap;

use ovn_schema::TableRow;
use ovn_schema::southbound::{Chassis, ChassisPrivate, Encap, PortBinding, SbGlobal};
use ovsdb::client::TableMonitor;
use ovsdb::datum::{Atom, Datum};
use ovsdb::replica::{RowView, Snapshot, Table};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use super::ChassisSpec;

/// Set by northd; `ovn-schema` does not have it because ovnkube does not read it.
pub(super) const REQUESTED_CHASSIS: &str = "requested_chassis";

/// What a real ovn-controller reports. If one chassis lacks a feature, northd creates flows without it for *all*; and
/// without `port-up-notif` a port counts as up as soon as it is bound.
const OTHER_CONFIG: [(&str, &str); 18] = [
    ("ct-commit-nat-v2", "true"),
    ("ct-commit-to-zone", "true"),
    ("ct-label-flush", "true"),
    ("ct-next-zone", "true"),
    ("ct-no-masked-label", "true"),
    ("ct-state-save", "true"),
    ("datapath-type", "netdev"),
    ("fdb-timestamp", "true"),
    ("iface-types", "geneve,internal,patch,system,tap"),
    ("is-interconn", "false"),
    ("ls-dpg-column", "true"),
    ("mac-binding-timestamp", "true"),
    ("ovn-bridge-mappings", "physnet:br-ex"),
    ("ovn-ct-lb-related", "true"),
    ("ovn-enable-lflow-cache", "true"),
    ("ovn-monitor-all", "true"),
    ("ovn-sample-with-registers", "true"),
    ("port-up-notif", "true"),
];

/// The monitored tables, in the order of [`PORTS`] and [`CHASSIS`]. All chassis rows: a condition for each of 500 names
/// would cost the server more than the few rows of other chassis.
pub(super) fn monitors() -> Vec<TableMonitor> {
    vec![
        TableMonitor::new(PortBinding::TABLE).columns(&[
            PortBinding::logical_port.name(),
            PortBinding::kind.name(),
            PortBinding::chassis.name(),
            REQUESTED_CHASSIS,
            PortBinding::up.name(),
            PortBinding::options.name(),
        ]),
        TableMonitor::new(Chassis::TABLE).columns(&[Chassis::name.name()]),
        TableMonitor::new(ChassisPrivate::TABLE).columns(&[
            ChassisPrivate::name.name(),
            ChassisPrivate::chassis.name(),
            ChassisPrivate::nb_cfg.name(),
        ]),
        TableMonitor::new(SbGlobal::TABLE).columns(&[SbGlobal::nb_cfg.name()]),
    ]
}

/// Indexes of the tables in changes.
pub(super) const PORTS: usize = 0;
pub(super) const CHASSIS: usize = 1;

pub(super) struct Private {
    pub(super) uuid: Uuid,
    pub(super) chassis: Option<Uuid>,
    pub(super) nb_cfg: i64,
}

pub(super) fn chassis_rows(snapshot: &Snapshot) -> HashMap<String, Uuid> {
    let rows = snapshot.table(Chassis::TABLE).into_iter().flat_map(Table::iter);
    rows.filter_map(|row| Some((row.text(Chassis::name.name())?, row.uuid))).collect()
}

pub(super) fn private_rows(snapshot: &Snapshot) -> HashMap<String, Private> {
    let rows = snapshot.table(ChassisPrivate::TABLE).into_iter().flat_map(Table::iter);
    rows.filter_map(|row| {
        let private = Private {
            uuid: row.uuid,
            chassis: optional_uuid(&row, ChassisPrivate::chassis.name()),
            nb_cfg: row.integer(ChassisPrivate::nb_cfg.name()).unwrap_or_default(),
        };
        Some((row.text(ChassisPrivate::name.name())?, private))
    })
    .collect()
}

/// Inserts the rows of a chassis: Encap, Chassis, Chassis_Private.
pub(super) fn announce(spec: &ChassisSpec, number: usize, transaction: &mut Transaction) {
    let (encap, chassis) = (format!("encap{number}"), format!("chassis{number}"));
    let end = Encap {
        kind: "geneve".into(),
        ip: spec.encap_ip.to_string(),
        options: [("csum".into(), "true".into())].into(),
        chassis_name: spec.name.clone(),
    };
    transaction.insert_named(Encap::TABLE, &encap, end.to_sparse_row());
    let row = Chassis {
        name: spec.name.clone(),
        hostname: spec.hostname.clone(),
        other_config: OTHER_CONFIG.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Chassis::default()
    };
    let row = row.to_sparse_row().set(Chassis::encaps.name(), Atom::Named(encap.into()));
    transaction.insert_named(Chassis::TABLE, &chassis, row);
    let private = ChassisPrivate { name: spec.name.clone(), ..ChassisPrivate::default() };
    let private = private.to_sparse_row().set(ChassisPrivate::chassis.name(), Atom::Named(chassis.into()));
    transaction.insert(ChassisPrivate::TABLE, private);
}

pub(super) fn binding(chassis: Option<Uuid>, up: bool) -> Row {
    Row::new()
        .set(PortBinding::chassis.name(), chassis.map_or(Datum::Empty, |row| Atom::Uuid(row).into()))
        .set(PortBinding::up.name(), Atom::Boolean(up))
}

pub(super) fn acknowledge(nb_cfg: i64, now: i64) -> Row {
    Row::new()
        .set(ChassisPrivate::nb_cfg.name(), Atom::Integer(nb_cfg))
        .set(ChassisPrivate::nb_cfg_timestamp.name(), Atom::Integer(now))
}

pub(super) fn optional_uuid(row: &RowView<'_>, column: &str) -> Option<Uuid> {
    match &*row.get(column)? {
        Datum::One(Atom::Uuid(uuid)) => Some(*uuid),
        _ => None,
    }
}

pub(super) fn option(port: &RowView<'_>, key: &str) -> Option<String> {
    port.get(PortBinding::options.name())?.get_str(key)
}
