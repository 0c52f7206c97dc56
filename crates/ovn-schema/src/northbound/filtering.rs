//! ACLs, and the port groups and address sets that they refer to.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A rule of a switch or a port group.
    table Acl = "ACL" {
        /// Name in the log, at most 63 characters.
        name: Option<String>;
        /// `from-lport` or `to-lport`.
        direction: String where choices = ["from-lport", "to-lport"];
        /// Within a tier, the highest-priority match applies.
        priority: i64;
        /// Match expression.
        matching: String as "match";
        /// Action on matching packets.
        action: String where choices = ["allow", "allow-related", "drop", "reject", "pass": AclTiers];
        /// Lower tiers are evaluated first; `pass` continues with the next.
        tier: i64 where feature = AclTiers;
        /// Whether matches are logged.
        log: bool;
        /// Severity in the log.
        severity: Option<String> where choices = ["alert", "warning", "notice", "info", "debug"];
        /// Meter that limits logging.
        meter: Option<String>;
        /// Label of allowed connections.
        label: i64;
        /// Such as `apply-after-lb`.
        options: StringMap;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A set of addresses, `$name` in a match.
    table AddressSet = "Address_Set" {
        /// Unique name.
        name: String;
        /// IP addresses and prefixes, or MACs: matches refer to them as `$name`.
        addresses: BTreeSet<String>;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }

    /// A group of ports, `@name` in a match, with its own ACLs.
    table PortGroup = "Port_Group" {
        /// Unique name.
        name: String;
        /// Weak references: a deleted port leaves the group.
        ports: BTreeSet<Uuid>;
        /// ACLs on all its ports.
        acls: BTreeSet<Uuid>;
        /// Keys of clients, such as the row's owner.
        external_ids: StringMap;
    }
}
