//! Identities of an earlier version: rows of one family had keys that ended in `false` (IPv4) or `true` (IPv6).
//!
//! The keys of today end in `v4` and `v6` ([`family_key`]), so the same row would have another UUID. A row that the database
//! has under its former identity keeps it: the alias table maps the computed identity to the former one, and nothing is
//! written. New rows, those of recreated nodes included, get the identity of today. Nothing is recorded: every start computes
//! the former identities and looks for them. So a row keeps its UUID as long as its owner exists, and this table stays as long
//! as databases of that version do.

use netmodel::Family;
use ovn_schema::TableRow;
use ovn_schema::northbound::{Acl, LogicalRouterStaticRoute, Nat, StaticMacBinding};
use ovsdb::replica::Snapshot;

use crate::contribution::Aliases;
use crate::identity::{family_key, row_uuid};
use crate::store::Store;

/// Table and key of the cluster's rows of each family. As that version had them: not to be changed with today's keys.
const OF_CLUSTER: [(&str, &str); 4] = [
    (Acl::TABLE, "hairpin from-lport"),
    (Acl::TABLE, "hairpin to-lport"),
    (Acl::TABLE, "unserved hosts"),
    (Acl::TABLE, "unserved pods"),
];
/// The same, of each node.
const OF_NODES: [(&str, &str); 6] = [
    (Acl::TABLE, "management acl"),
    (LogicalRouterStaticRoute::TABLE, "join"),
    (LogicalRouterStaticRoute::TABLE, "masquerade"),
    (LogicalRouterStaticRoute::TABLE, "pods out"),
    (Nat::TABLE, "snat of what is sent again"),
    (StaticMacBinding::TABLE, "masquerade next hop"),
];

/// Adds the rows that the database has under their former identities, be it directly or as adopted rows that stand for them.
pub(crate) fn find(store: &Store, snapshot: &Snapshot, aliases: &mut Aliases) {
    find_of("Cluster", "cluster", &OF_CLUSTER, snapshot, aliases);
    for node in store.nodes() {
        find_of("Node", &node.uid, &OF_NODES, snapshot, aliases);
    }
}

fn find_of(kind: &str, identity: &str, rows: &[(&str, &str)], snapshot: &Snapshot, aliases: &mut Aliases) {
    for (table, key) in rows {
        for family in Family::BOTH {
            let former = row_uuid(table, kind, identity, &format!("{key} {}", family.is_ipv6()));
            if snapshot.table(table).is_some_and(|rows| rows.get(aliases.resolve(former)).is_some()) {
                aliases.insert_former(row_uuid(table, kind, identity, &family_key(key, family)), former);
            }
        }
    }
}
