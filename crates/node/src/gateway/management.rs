//! The management port `ovn-k8s-mp0`: the host's port on the node's logical switch.

use netmodel::Mac;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};

use super::view::BridgeView;
use crate::kernel::device::Device;
use crate::options::MANAGEMENT_PORT;

const IFACE_ID: &str = "iface-id";

/// The transaction that creates or corrects the port; None if nothing differs.
pub(super) fn plan(
    integration: &BridgeView,
    node: &str,
    mac: Mac,
    mtu: u32,
    device: Option<&Device>,
) -> Option<Transaction> {
    let logical = format!("k8s-{node}");
    let mut transaction = Transaction::new();
    match integration.interfaces.iter().find(|interface| interface.name == MANAGEMENT_PORT) {
        None => {
            let interface = Row::new()
                .text("name", MANAGEMENT_PORT)
                .text("type", "internal")
                .text("mac", &mac.to_string())
                .set("mtu_request", Atom::Integer(i64::from(mtu)))
                .map("external_ids", [(IFACE_ID, logical.as_str()), ("attached_mac", &mac.to_string())]);
            transaction.insert_named("Interface", "interface", interface);
            let port =
                Row::new().text("name", MANAGEMENT_PORT).set("interfaces", Datum::One(Atom::Named("interface".into())));
            transaction.insert_named("Port", "port", port);
            let ports = Datum::One(Atom::Named("port".into()));
            transaction.mutate(
                "Bridge",
                vec![Condition::uuid(integration.uuid)],
                vec![Mutation::new("ports", Mutator::Insert, ports)],
            );
        }
        Some(found) => {
            let attached = mac.to_string();
            // Otherwise ovs-vswitchd would restore the former MTU.
            let resized = device.is_some_and(|device| device.mtu != mtu);
            if resized || found.external_ids.get("attached_mac") != Some(&attached) {
                let row = Row::new().text("mac", &attached).set("mtu_request", Atom::Integer(i64::from(mtu)));
                transaction.update("Interface", vec![Condition::uuid(found.uuid)], row);
            }
            for (key, value) in [(IFACE_ID, &logical), ("attached_mac", &attached)] {
                if found.external_ids.get(key) != Some(value) {
                    transaction.set_key("Interface", found.uuid, "external_ids", key, value);
                }
            }
        }
    }
    (!transaction.is_empty()).then_some(transaction)
}

/// The transaction that removes the port; None if it does not exist.
pub(super) fn removal(integration: &BridgeView) -> Option<Transaction> {
    let found = integration.interfaces.iter().find(|interface| interface.name == MANAGEMENT_PORT)?;
    let mut transaction = Transaction::new();
    let port = Datum::One(Atom::Uuid(found.port));
    transaction.mutate(
        "Bridge",
        vec![Condition::uuid(integration.uuid)],
        vec![Mutation::new("ports", Mutator::Delete, port)],
    );
    Some(transaction)
}
