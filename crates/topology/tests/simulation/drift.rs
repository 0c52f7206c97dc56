//! Drift: another client changes the controller's rows.

use ovsdb::operation::Condition;
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;

use crate::scenario::Scenario;
use crate::support::faults::Fault;

impl Scenario {
    /// Another client changes or deletes one of the controller's rows.
    pub(crate) fn change_rows_by_hand(&mut self) {
        self.faults.inject(Fault::RowsChangedByHand, &mut self.rng);
        let ours = |values: &ovsdb::operation::RowValues| {
            values.get("external_ids").is_some_and(|ids| ids.get_str("k8s.ovn.org/owner-controller").is_some())
        };
        let rows: Vec<(String, Uuid)> = self
            .nb
            .database
            .tables()
            .filter(|(_, _, values)| ours(values))
            .map(|(table, uuid, _)| (table.to_owned(), uuid))
            .collect();
        let Some((table, uuid)) = self.rng.pick(&rows).cloned() else { return };
        let (column, root) = match table.as_str() {
            "Logical_Switch_Port" => ("port_security", false),
            "Address_Set" => ("addresses", true),
            "Logical_Switch" => ("ports", true),
            "Logical_Router" => ("static_routes", true),
            "Port_Group" => ("ports", true),
            "NAT" => ("options", false),
            "QoS" => ("bandwidth", false),
            "Load_Balancer" => ("vips", true),
            "Chassis_Template_Var" => ("variables", true),
            _ => return,
        };
        let mut change = Transaction::new();
        if root && self.rng.percent(30) {
            change.delete(&table, vec![Condition::uuid(uuid)]);
        } else {
            let map = ["options", "vips", "variables", "bandwidth"].contains(&column);
            let empty = if map { ovsdb::datum::Datum::map([]) } else { ovsdb::datum::Datum::Empty };
            change.update(&table, vec![Condition::uuid(uuid)], ovsdb::transaction::Row::new().set(column, empty));
        }
        self.nb.change_externally(&change);
    }
}
