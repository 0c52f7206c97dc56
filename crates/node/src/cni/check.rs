//! CHECK: compares an attachment with its desired state.

use std::path::PathBuf;

use cni::{Attachment, Code, Failure, PodReference};
use ovsdb::uuid::Uuid;
use tokio::time::{Instant, timeout};

use super::add::link_failure;
use super::{Inner, wiring};
use crate::switch::rows::{FoundPort, PodPort, pod_ports};

impl Inner {
    pub(super) async fn check(&self, attachment: &Attachment, netns: &str, pod: &PodReference) -> Result<(), Failure> {
        let _lock = self.locks.lock(attachment).await;
        let config = timeout(self.deps.add_timeout, self.deps.pods.wait_for_config(pod)).await.map_err(|_| {
            let message = format!("the network of pod {}/{} is not known", pod.namespace, pod.name);
            Failure::new(Code::TryAgainLater, message).with_details(self.deps.pods.missing_config_reason(pod))
        })??;
        if let Err(why) = self.deps.ports.reachable() {
            let message = "not connected to Open vSwitch's database: start Open vSwitch on this node";
            return Err(Failure::new(Code::TryAgainLater, message).with_details(why));
        }
        let mtu = *self.deps.mtu.borrow();
        let userspace = self.userspace(Instant::now() + self.deps.add_timeout).await?;
        let link = wiring::link(attachment, &config, mtu, userspace);
        let (checked, path) = (link.clone(), PathBuf::from(netns));
        let mut damage =
            self.run_blocking(move || checked.check(&path)).await?.map_err(|error| link_failure(&error))?;
        let expected = wiring::port(attachment, &config, netns, (Uuid::from_bytes([0; 16]), Uuid::from_bytes([0; 16])));
        let ports = pod_ports(&self.deps.ports.snapshot(), None);
        match ports.iter().find(|port| port.name == link.host) {
            None => damage.push(format!("port {} of br-int, with its external_ids:sandbox, is gone", link.host)),
            Some(port) => damage.extend(port_damage(port, &expected)),
        }
        if damage.is_empty() {
            return Ok(());
        }
        let message = format!("the network of pod {} is damaged", config.key);
        Err(Failure::new(Code::CheckFailed, message)
            .with_details(format!("{}; delete the pod so that it is created again", damage.join("; "))))
    }
}

/// Differences of a port from its desired state.
fn port_damage(port: &FoundPort, expected: &PodPort) -> Vec<String> {
    let mut damage = Vec::new();
    let mut compare = |key: &str, found: Option<&str>, expected: &str| {
        if found != Some(expected) {
            let found = found.unwrap_or("nothing");
            damage.push(format!("port {} of br-int has {found} as external_ids:{key}, not {expected}", port.name));
        }
    };
    compare("iface-id", Some(&port.logical_port), &expected.logical_port);
    compare("iface-id-ver", Some(&port.uid), &expected.uid);
    compare("sandbox", Some(&port.sandbox), &expected.sandbox);
    compare("attached_mac", port.mac.as_deref(), &expected.mac);
    compare("ip_addresses", port.addresses.as_deref(), &expected.addresses);
    // OVN-Kubernetes (Go) writes neither key.
    if port.pod_interface.is_some() || port.netns.is_some() {
        compare("k8s.ovn.org/interface", port.pod_interface.as_deref(), &expected.pod_interface);
        compare("k8s.ovn.org/netns", port.netns.as_deref(), &expected.netns);
    }
    if let Some(error) = &port.error {
        damage.push(format!("ovs-vswitchd cannot use port {}: {error}", port.name));
    }
    if !port.installed {
        damage.push(format!("ovn-controller has not installed port {}", port.name));
    }
    damage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_differs_is_named() {
        let text = |text: &str| text.to_owned();
        let zero = Uuid::from_bytes([0; 16]);
        let expected = PodPort {
            port_row: zero,
            interface_row: zero,
            name: text("pod0"),
            logical_port: text("ns_p"),
            uid: text("u-1"),
            mac: text("0a:58:0a:82:00:05"),
            addresses: text("10.130.0.5/23"),
            sandbox: text("s-1"),
            pod_interface: text("eth0"),
            netns: text("/run/netns/x"),
        };
        let whole = FoundPort {
            port_row: zero,
            name: text("pod0"),
            logical_port: text("ns_p"),
            uid: text("u-1"),
            sandbox: text("s-1"),
            pod_interface: Some(text("eth0")),
            netns: Some(text("/run/netns/x")),
            mac: Some(text("0a:58:0a:82:00:05")),
            addresses: Some(text("10.130.0.5/23")),
            installed: true,
            error: None,
        };
        assert!(port_damage(&whole, &expected).is_empty());
        let foreign = FoundPort { pod_interface: None, netns: None, ..whole.clone() };
        assert!(port_damage(&foreign, &expected).is_empty(), "OVN-Kubernetes (Go) writes fewer keys");
        for (key, damaged) in [
            ("iface-id", FoundPort { logical_port: text("ns_q"), ..whole.clone() }),
            ("iface-id-ver", FoundPort { uid: text("u-2"), ..whole.clone() }),
            ("sandbox", FoundPort { sandbox: text("s-2"), ..whole.clone() }),
            ("attached_mac", FoundPort { mac: None, ..whole.clone() }),
            ("ip_addresses", FoundPort { addresses: Some(text("10.130.0.6/23")), ..whole.clone() }),
            ("k8s.ovn.org/interface", FoundPort { pod_interface: None, ..whole.clone() }),
            ("k8s.ovn.org/netns", FoundPort { netns: Some(text("/run/netns/y")), ..whole.clone() }),
            ("ovs-vswitchd", FoundPort { error: Some(text("no device")), ..whole.clone() }),
            ("has not installed", FoundPort { installed: false, ..whole.clone() }),
        ] {
            let damage = port_damage(&damaged, &expected);
            assert!(damage.len() == 1 && damage[0].contains(key), "{key}: {damage:?}");
        }
    }
}
