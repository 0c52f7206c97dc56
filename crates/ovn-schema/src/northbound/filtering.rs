//! What may pass: ACLs, and the groups of ports and addresses that they speak of.

use std::collections::BTreeSet;

use ovsdb::uuid::Uuid;

use crate::declare::tables;
use crate::value::StringMap;

tables! {
    /// A rule of a switch or port group.
    table Acl = "ACL" {
        /// Its name in the log, of 63 characters at most.
        name: Option<String>;
        /// Where packets come from, or go to.
        direction: String where choices = ["from-lport", "to-lport"];
        /// Within a tier the highest that matches acts.
        priority: i64;
        /// Which packets.
        matching: String as "match";
        /// What happens to them.
        action: String where choices = ["allow", "allow-related", "drop", "reject", "pass": AclTiers];
        /// Lower tiers are asked first; `pass` goes on to the next.
        tier: i64 where feature = AclTiers;
        /// Whether matches are logged.
        log: bool;
        /// How severe they are in the log.
        severity: Option<String> where choices = ["alert", "warning", "notice", "info", "debug"];
        /// The meter that limits the log.
        meter: Option<String>;
        /// A number on the connections that it allows.
        label: i64;
        /// Such as `apply-after-lb`.
        options: StringMap;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// Addresses that a match speaks of as `$name`.
    table AddressSet = "Address_Set" {
        /// Its name, unique.
        name: String;
        /// Its addresses.
        addresses: BTreeSet<String>;
        /// Who owns it.
        external_ids: StringMap;
    }

    /// Ports that a match speaks of as `@name`, with rules of their own.
    table PortGroup = "Port_Group" {
        /// Its name, unique.
        name: String;
        /// Its ports.
        ports: BTreeSet<Uuid>;
        /// Rules on all of them.
        acls: BTreeSet<Uuid>;
        /// Who owns it.
        external_ids: StringMap;
    }
}
