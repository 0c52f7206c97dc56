//! What the rules report. Codes are a contract: scripts and documents name them, so a code never changes its meaning.

use std::fmt;

use crate::yaml::Position;

/// Whether a configuration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It is.
    Error,
    /// It is not, but it does not do what it says.
    Warning,
}

impl Severity {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

macro_rules! codes {
    ($($code:ident $rule:literal $why:literal $remedy:literal)*) => {
        /// A rule. The descriptions are the table of docs/bridge.md.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the rule is its description")]
        pub enum Code { $($code),* }

        impl Code {
            /// All rules, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// The code.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$code => stringify!($code)),* }
            }

            /// What the rule demands.
            pub fn rule(self) -> &'static str {
                match self { $(Self::$code => $rule),* }
            }

            /// Why.
            pub fn why(self) -> &'static str {
                match self { $(Self::$code => $why),* }
            }

            /// How to follow it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$code => $remedy),* }
            }
        }
    };
}

codes! {
    BR001 "the file is YAML of one document"
        "nothing else can be read" "correct the line"
    BR002 "fields have the types that NMState reads"
        "NMState refuses the whole file" "write the value as the reason says"
    BR003 "an install-config has `networking.hostConfig`"
        "there is nothing to check otherwise" "add one entry per host: name, networkConfig"
    BR004 "a host's name can be the name of its file"
        "its first label is: `<short name>.yml`" "use the host's name: letters, digits and hyphens; not localhost, not cluster"
    BR005 "no two hosts have the same short name"
        "they would have the same file" "remove or rename one"
    BR006 "no known field is misspelt"
        "NMState refuses it or does not see it; unknown fields are passed through" "correct the field's name"
    BR007 "each interface is described once"
        "NMState would use one of the descriptions" "merge the two"
    BR008 "an NMState file has no merge keys (`<<`)"
        "NMState does not resolve them; `render` does" "write the fields out, or use aliases"
    BR010 "there is an OVS bridge `br-ex`"
        "the node agent connects pods to the outside through it" "add an interface br-ex of type ovs-bridge"
    BR011 "there is an internal interface `br-ex`"
        "it has the host's addresses" "add an interface br-ex of type ovs-interface"
    BR012 "the internal interface is a port of the bridge"
        "it has no network otherwise" "add `- name: br-ex` to bridge.port"
    BR013 "the bridge has an uplink"
        "it leads nowhere otherwise" "add the NIC, bond or VLAN to bridge.port"
    BR014 "the bridge has one uplink only"
        "several make a loop; the agent's flows know one" "keep one, or make a bond of them"
    BR015 "the uplink is a NIC, a bond or a VLAN"
        "nothing else leads out of the host" "name a NIC, bond or VLAN in bridge.port"
    BR016 "the uplink is not a bond of Open vSwitch"
        "it has no OpenFlow port of its own, which the agent's flows need" "use an interface of type bond as uplink"
    BR017 "the bridge, its internal interface and its uplink are up"
        "NMState would remove or ignore them" "write state: up"
    BR018 "ports of the bridge have no second owner"
        "an interface has one controller" "remove it from the other one"
    BR019 "a bond has ports, a VLAN has a base interface and an ID"
        "NMState cannot create it otherwise" "complete it"
    BR020 "addresses are not on the uplink"
        "Open vSwitch takes its packets, so they would not be answered" "move them to the internal interface; write enabled: false"
    BR021 "addresses are not on the bridge"
        "only its internal interface can have some" "move them to the interface of type ovs-interface"
    BR022 "the internal interface has an address"
        "the node's gateway needs one" "enable ipv4 or ipv6, with dhcp, autoconf or address"
    BR023 "addresses are valid"
        "NMState refuses others" "correct the address"
    BR030 "the MAC of br-ex is decided"
        "otherwise it depends on the order in which ports appear" "write copy-mac-from: UPLINK or mac-address on br-ex"
    BR031 "`copy-mac-from` names the uplink"
        "a MAC of another interface appears twice in the network" "name the uplink"
    BR032 "the MAC is valid and decided once"
        "of two policies one would be ignored" "write copy-mac-from or one unicast mac-address"
    BR033 "`copy-mac-from` is on the internal interface (warning)"
        "NMState ignores it on an ovs-bridge; Open vSwitch then takes the uplink's MAC" "write it on the interface of type ovs-interface"
    BR034 "the MTUs of interface, bridge and uplink fit"
        "larger packets are dropped" "set mtu on the uplink and everything that it consists of, too"
    BR035 "an MTU is possible"
        "IPv4 needs 576, IPv6 1280; the largest is 65535" "correct mtu"
    BR040 "the default route leads through br-ex if the node IP is there"
        "pods leave through br-ex, so the host must, too" "set next-hop-interface: br-ex, or remove the other default route"
    BR041 "there is a default route if the node IP is on br-ex"
        "static addresses come without one" "add it to routes.config"
    BR042 "the gateway is in a network of br-ex"
        "its MAC cannot be found otherwise" "correct next-hop-address or the address"
    BR043 "there is a DNS server if the node IP is on br-ex"
        "static addresses come without one" "add it to dns-resolver.config.server"
    BR044 "DNS servers are reached through br-ex if the node IP is there"
        "names must be resolved when only br-ex works" "use servers that the default route leads to"
}

impl Code {
    /// Whether violations refuse a configuration.
    pub fn severity(self) -> Severity {
        if self == Self::BR033 { Severity::Warning } else { Severity::Error }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule that a configuration does not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub code: Code,
    /// Where, in the file; of what an alias stands for, where its anchor is.
    pub at: Position,
    /// The host that it concerns, as it is named in an install-config.
    pub host: Option<String>,
    /// What is wrong here.
    pub reason: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}: ", self.at, self.code.severity().as_str(), self.code)?;
        if let Some(host) = &self.host {
            write!(f, "host {host:?}: ")?;
        }
        write!(f, "{}; {}", self.reason, self.code.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_rule_and_no_other() {
        let rows: String = Code::ALL
            .iter()
            .map(|code| format!("| {code} | {} | {} | {} |\n", code.rule(), code.why(), code.remedy()))
            .collect();
        let page = include_str!("../../../docs/bridge.md");
        assert!(page.contains(&rows), "docs/bridge.md lacks these rows:\n{rows}");
        assert_eq!(page.matches("\n| BR").count(), Code::ALL.len());
    }
}
