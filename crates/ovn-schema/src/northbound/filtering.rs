//! ACLs, and the port groups and address sets that they refer to.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A rule of a switch or a port group.
    table Acl = "ACL" {
        /// Shown in ovn-controller's log: `NP:<namespace>:<policy>:<direction>`, at most 63 characters. None for rows
        /// that are not logged.
        name: Option<String>;
        /// `to-lport` is what a port receives (a policy's ingress rules), `from-lport` what it sends (egress).
        direction: String where choices = ["from-lport", "to-lport"];
        /// Within a tier, the highest-priority match applies.
        priority: i64;
        /// OVN expression over the packet, with port groups as `@name` and address sets as `$name`.
        matching: String as "match";
        /// `allow-related` admits replies too; `pass` continues with the next tier.
        action: String where choices = ["allow", "allow-related", "drop", "reject", "pass": AclTiers];
        /// Lower tiers are evaluated first; `pass` continues with the next.
        tier: i64 where feature = AclTiers;
        /// Whether ovn-controller logs matching packets, as the namespace's annotation `k8s.ovn.org/acl-logging` asks.
        log: bool;
        /// Severity of the log lines; none for rows that are not logged.
        severity: Option<String> where choices = ["alert", "warning", "notice", "info", "debug"];
        /// Name of the meter that limits the log lines; without one, many packets would fill the log.
        meter: Option<String>;
        /// Connection-tracking label of allowed connections. Not written here.
        label: i64;
        /// Such as `apply-after-lb`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A set of addresses, `$name` in a match.
    table AddressSet = "Address_Set" {
        /// Unique: derived from the namespace or the canonical text of the selector, and the family.
        name: String;
        /// IP addresses and prefixes, or MACs: matches refer to them as `$name`.
        addresses: BTreeSet<String>;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A group of ports, `@name` in a match, with its own ACLs.
    table PortGroup = "Port_Group" {
        /// Unique: derived from the namespace or the canonical text of the selector.
        name: String;
        /// Weak references: a deleted port leaves the group.
        ports: BTreeSet<Uuid>;
        /// Strong references: these apply to every port of the group.
        acls: BTreeSet<Uuid>;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
